package softcuda

import (
	"math/bits"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/gpu"
)

// An alloc is what a program allocated or registered.
type alloc struct {
	id    uint64 // unique in the process
	ctx   *context
	kind  gpu.Kind
	flags uint32
}

// Alloc allocates in the current context.
func (d *Driver) Alloc(t *Thread, k gpu.Kind, n uint64, flags uint32) (gpu.Addr, error) {
	c, err := d.current(t)
	if err != nil {
		return 0, err
	}
	a, err := c.gpu.Alloc(k, n, gpu.Flags(flags))
	if err != nil {
		return 0, err
	}
	d.note(a, &alloc{ctx: c, kind: k, flags: flags})
	return a, nil
}

func (d *Driver) note(a gpu.Addr, al *alloc) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.nextID++
	al.id = d.nextID
	d.allocs[a] = al
}

// take removes what is noted at a if ok says so, and reports whether it was
// there. Of two threads that free the same memory one gets it.
func (d *Driver) take(a gpu.Addr, ok func(*alloc) bool) (*alloc, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	al := d.allocs[a]
	if al == nil || !ok(al) {
		return nil, false
	}
	delete(d.allocs, a)
	return al, true
}

// Free frees what ok accepts.
func (d *Driver) free(a gpu.Addr, ok func(*alloc) bool) error {
	al, found := d.take(a, ok)
	if !found {
		return gpu.ErrInvalidValue
	}
	return al.ctx.gpu.Free(a)
}

func onDevice(al *alloc) bool { return al.kind.OnDevice() || al.kind == gpu.KindManaged }
func pinned(al *alloc) bool   { return al.kind == gpu.KindHost }

// MemGetInfo is cuMemGetInfo.
func (d *Driver) MemGetInfo(t *Thread, free, total cmem.Ptr) error {
	c, err := d.current(t)
	if err != nil {
		return err
	}
	f, n, err := c.gpu.MemInfo()
	if err != nil {
		return err
	}
	cmem.Store(free, f)
	cmem.Store(total, n)
	return nil
}

// MemAlloc is cuMemAlloc.
func (d *Driver) MemAlloc(t *Thread, out cmem.Ptr, n uint64) error {
	return d.allocTo(t, out, gpu.KindDevice, n, 0)
}

func (d *Driver) allocTo(t *Thread, out cmem.Ptr, k gpu.Kind, n uint64, flags uint32) error {
	a, err := d.Alloc(t, k, n, flags)
	if err != nil {
		return err
	}
	cmem.Store(out, a)
	return nil
}

// MemAllocPitch is cuMemAllocPitch: rows begin at multiples of 512 bytes.
func (d *Driver) MemAllocPitch(t *Thread, out, pitch cmem.Ptr, width, height uint64, element uint32) error {
	if width == 0 || height == 0 || element != 4 && element != 8 && element != 16 {
		return gpu.ErrInvalidValue
	}
	const align = 512
	row := (width + align - 1) / align * align
	over, n := bits.Mul64(row, height)
	if over != 0 || row < width {
		return gpu.ErrInvalidValue
	}
	if err := d.allocTo(t, out, gpu.KindDevice, n, 0); err != nil {
		return err
	}
	cmem.Store(pitch, row)
	return nil
}

// MemFree is cuMemFree.
func (d *Driver) MemFree(t *Thread, a gpu.Addr) error {
	if _, err := d.current(t); err != nil {
		return err
	}
	return d.free(a, onDevice)
}

// MemGetAddressRange is cuMemGetAddressRange.
func (d *Driver) MemGetAddressRange(t *Thread, base, size cmem.Ptr, a gpu.Addr) error {
	c, err := d.current(t)
	if err != nil {
		return err
	}
	p, err := c.gpu.Pointer(a)
	if err != nil {
		return err
	}
	if p.Kind == gpu.KindNone {
		return gpu.ErrNotFound
	}
	if base != 0 {
		cmem.Store(base, p.Base)
	}
	if size != 0 {
		cmem.Store(size, p.Size)
	}
	return nil
}

// MemAllocManaged is cuMemAllocManaged.
func (d *Driver) MemAllocManaged(t *Thread, out cmem.Ptr, n uint64, flags uint32) error {
	if flags != uint32(gpu.ManagedGlobal) && flags != uint32(gpu.ManagedHost) {
		return gpu.ErrInvalidValue
	}
	return d.allocTo(t, out, gpu.KindManaged, n, flags)
}

// MemAllocHost is cuMemAllocHost.
func (d *Driver) MemAllocHost(t *Thread, out cmem.Ptr, n uint64) error {
	return d.allocTo(t, out, gpu.KindHost, n, 0)
}

// MemHostAlloc is cuMemHostAlloc, which gives nothing, gladly, to those who want
// nothing.
func (d *Driver) MemHostAlloc(t *Thread, out cmem.Ptr, n uint64, flags uint32) error {
	if n == 0 {
		_, err := d.current(t)
		if err == nil {
			cmem.Store(out, gpu.Addr(0))
		}
		return err
	}
	return d.allocTo(t, out, gpu.KindHost, n, flags)
}

// MemFreeHost is cuMemFreeHost.
func (d *Driver) MemFreeHost(t *Thread, p cmem.Ptr) error {
	if _, err := d.current(t); err != nil {
		return err
	}
	return d.free(gpu.Addr(p), pinned)
}

// MemHostRegister is cuMemHostRegister.
func (d *Driver) MemHostRegister(t *Thread, p cmem.Ptr, n uint64, flags uint32) error {
	c, err := d.current(t)
	if err != nil {
		return err
	}
	if err := c.gpu.Register(uintptr(p), n, gpu.Flags(flags)); err != nil {
		return err
	}
	d.note(gpu.Addr(p), &alloc{ctx: c, kind: gpu.KindRegistered, flags: flags})
	return nil
}

// MemHostUnregister is cuMemHostUnregister.
func (d *Driver) MemHostUnregister(t *Thread, p cmem.Ptr) error {
	if _, err := d.current(t); err != nil {
		return err
	}
	al, ok := d.take(gpu.Addr(p), func(al *alloc) bool { return al.kind == gpu.KindRegistered })
	if ok {
		return al.ctx.gpu.Unregister(uintptr(p))
	}
	if in, err := d.Pointer(t, gpu.Addr(p)); err == nil && in.Kind != gpu.KindNone {
		return gpu.ErrInvalidValue // inside a registration, or memory of another kind
	}
	return gpu.ErrHostMemoryNotRegistered
}

// MemHostGetDevicePointer is cuMemHostGetDevicePointer.
func (d *Driver) MemHostGetDevicePointer(t *Thread, out, p cmem.Ptr, flags uint32) error {
	c, err := d.current(t)
	if err != nil {
		return err
	}
	if flags != 0 {
		return gpu.ErrInvalidValue
	}
	a, err := c.gpu.DevicePointer(uintptr(p))
	if err != nil {
		return err
	}
	cmem.Store(out, a)
	return nil
}

// MemHostGetFlags is cuMemHostGetFlags. Under unified addressing pinned memory
// is always mapped and portable, and says so.
func (d *Driver) MemHostGetFlags(t *Thread, out, p cmem.Ptr) error {
	if _, err := d.current(t); err != nil {
		return err
	}
	d.mu.Lock()
	al := d.allocs[gpu.Addr(p)]
	d.mu.Unlock()
	if al == nil || !pinned(al) {
		return gpu.ErrInvalidValue
	}
	cmem.Store(out, al.flags|uint32(gpu.HostPortable|gpu.HostMapped))
	return nil
}

// MemGetHandleForAddressRange is cuMemGetHandleForAddressRange: device memory
// as a dma-buf.
func (d *Driver) MemGetHandleForAddressRange(t *Thread, out cmem.Ptr, a gpu.Addr, n uint64, kind int32, flags uint64) error {
	const dmaBuf = 1
	c, err := d.current(t)
	if err != nil {
		return err
	}
	switch {
	case kind != dmaBuf:
		return gpu.ErrInvalidValue
	case flags != 0:
		return gpu.ErrNotSupported
	}
	f, err := c.gpu.Export(a, n, gpu.ExportDMABuf)
	if err != nil {
		return err
	}
	fd, err := release(f)
	if err != nil {
		return err
	}
	cmem.Store(out, int32(fd))
	return nil
}

// FlushGPUDirectRDMAWrites is cuFlushGPUDirectRDMAWrites.
func (d *Driver) FlushGPUDirectRDMAWrites(t *Thread, target, scope int32) error {
	c, err := d.current(t)
	if err != nil {
		return err
	}
	if target != 0 {
		return gpu.ErrInvalidValue
	}
	return c.gpu.FlushWrites(gpu.Scope(scope))
}
