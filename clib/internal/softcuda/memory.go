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

	opened bool // by an IPC handle: memory of another process
}

// Alloc allocates in the context of the call and stores the address.
func (d *Driver) Alloc(c Call, out cmem.Ptr, k gpu.Kind, n uint64, flags uint32) error {
	a, err := c.ctx.gpu.Alloc(k, n, gpu.Flags(flags))
	if err != nil {
		return err
	}
	d.note(a, &alloc{ctx: c.ctx, kind: k, flags: flags})
	return cmem.Answer(out, a)
}

func (d *Driver) note(a gpu.Addr, al *alloc) {
	d.mu.Lock()
	defer d.mu.Unlock()
	al.id = d.id()
	d.allocs[a] = al
}

// take removes the allocation at a if ok accepts it. If two threads free the
// same memory, one of them gets it.
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

// free frees memory that ok accepts.
func (d *Driver) free(a gpu.Addr, ok func(*alloc) bool) error {
	al, found := d.take(a, ok)
	if !found {
		return gpu.ErrInvalidValue
	}
	return al.ctx.gpu.Free(a)
}

func onDevice(al *alloc) bool {
	return (al.kind.OnDevice() || al.kind == gpu.KindManaged) && !al.opened
}
func pinned(al *alloc) bool { return al.kind == gpu.KindHost }

// MemGetInfo is cuMemGetInfo.
func (d *Driver) MemGetInfo(c Call, free, total cmem.Ptr) error {
	f, n, err := c.ctx.gpu.MemInfo()
	if err != nil {
		return err
	}
	cmem.Store(free, f)
	return cmem.Answer(total, n)
}

// MemAlloc is cuMemAlloc.
func (d *Driver) MemAlloc(c Call, out cmem.Ptr, n uint64) error {
	return d.Alloc(c, out, gpu.KindDevice, n, 0)
}

// MemAllocPitch is cuMemAllocPitch: rows begin at multiples of 512 bytes.
func (d *Driver) MemAllocPitch(c Call, out, pitch cmem.Ptr, width, height uint64, element uint32) error {
	if width == 0 || height == 0 || element != 4 && element != 8 && element != 16 {
		return gpu.ErrInvalidValue
	}
	const align = 512
	row := (width + align - 1) / align * align
	over, n := bits.Mul64(row, height)
	if over != 0 || row < width {
		return gpu.ErrInvalidValue
	}
	return cmem.Put(pitch, row, d.Alloc(c, out, gpu.KindDevice, n, 0))
}

// MemFree is cuMemFree. The address says which context it belongs to; none need be
// current.
func (d *Driver) MemFree(_ Call, a gpu.Addr) error { return d.free(a, onDevice) }

// MemGetAddressRange is cuMemGetAddressRange.
func (d *Driver) MemGetAddressRange(c Call, base, size cmem.Ptr, a gpu.Addr) error {
	p, err := c.ctx.gpu.Pointer(a)
	if err != nil {
		return err
	}
	if p.Kind == gpu.KindNone {
		return gpu.ErrNotFound
	}
	cmem.StoreUnlessNull(base, p.Base)
	cmem.StoreUnlessNull(size, p.Size)
	return nil
}

// MemAllocManaged is cuMemAllocManaged.
func (d *Driver) MemAllocManaged(c Call, out cmem.Ptr, n uint64, flags uint32) error {
	if flags != uint32(gpu.ManagedGlobal) && flags != uint32(gpu.ManagedHost) {
		return gpu.ErrInvalidValue
	}
	return d.Alloc(c, out, gpu.KindManaged, n, flags)
}

// MemAllocHost is cuMemAllocHost.
func (d *Driver) MemAllocHost(c Call, out cmem.Ptr, n uint64) error {
	return d.Alloc(c, out, gpu.KindHost, n, 0)
}

// MemHostAlloc is cuMemHostAlloc, which returns NULL for a size of 0.
func (d *Driver) MemHostAlloc(c Call, out cmem.Ptr, n uint64, flags uint32) error {
	if n == 0 {
		return cmem.Answer(out, gpu.Addr(0))
	}
	return d.Alloc(c, out, gpu.KindHost, n, flags)
}

// MemFreeHost is cuMemFreeHost.
func (d *Driver) MemFreeHost(_ Call, p cmem.Ptr) error { return d.free(gpu.Addr(p), pinned) }

// MemHostRegister is cuMemHostRegister.
func (d *Driver) MemHostRegister(c Call, p cmem.Ptr, n uint64, flags uint32) error {
	if err := c.ctx.gpu.Register(uintptr(p), n, gpu.Flags(flags)); err != nil {
		return err
	}
	d.note(gpu.Addr(p), &alloc{ctx: c.ctx, kind: gpu.KindRegistered, flags: flags})
	return nil
}

// MemHostUnregister is cuMemHostUnregister.
func (d *Driver) MemHostUnregister(c Call, p cmem.Ptr) error {
	al, ok := d.take(gpu.Addr(p), func(al *alloc) bool { return al.kind == gpu.KindRegistered })
	if ok {
		return al.ctx.gpu.Unregister(uintptr(p))
	}
	if in, err := d.Pointer(c, gpu.Addr(p)); err == nil && in.Kind != gpu.KindNone {
		return gpu.ErrInvalidValue // inside a registration, or memory of another kind
	}
	return gpu.ErrHostMemoryNotRegistered
}

// MemHostGetDevicePointer is cuMemHostGetDevicePointer.
func (d *Driver) MemHostGetDevicePointer(c Call, out, p cmem.Ptr, flags uint32) error {
	if flags != 0 {
		return gpu.ErrInvalidValue
	}
	a, err := c.ctx.gpu.DevicePointer(uintptr(p))
	return cmem.Put(out, a, err)
}

// MemHostGetFlags is cuMemHostGetFlags. Under unified addressing pinned memory
// is always mapped and portable.
func (d *Driver) MemHostGetFlags(_ Call, out, p cmem.Ptr) error {
	d.mu.Lock()
	al := d.allocs[gpu.Addr(p)]
	d.mu.Unlock()
	if al == nil || !pinned(al) {
		return gpu.ErrInvalidValue
	}
	return cmem.Answer(out, al.flags|uint32(gpu.HostPortable|gpu.HostMapped))
}

// MemGetHandleForAddressRange is cuMemGetHandleForAddressRange: device memory
// as a dma-buf.
func (d *Driver) MemGetHandleForAddressRange(c Call, out cmem.Ptr, a gpu.Addr, n uint64, kind int32, flags uint64) error {
	const dmaBuf, pcie = 1, 1
	as := gpu.ExportDMABuf
	switch {
	case kind != dmaBuf:
		return gpu.ErrInvalidValue
	case flags == pcie:
		as = gpu.ExportDMABufPCIe
	case flags != 0:
		return gpu.ErrNotSupported
	}
	f, err := c.ctx.gpu.Export(a, n, as)
	if err != nil {
		return err
	}
	return putDescriptor(out, f)
}

// FlushGPUDirectRDMAWrites is cuFlushGPUDirectRDMAWrites.
func (d *Driver) FlushGPUDirectRDMAWrites(c Call, target, scope int32) error {
	if target != 0 {
		return gpu.ErrInvalidValue
	}
	return c.ctx.gpu.FlushWrites(gpu.Scope(scope))
}
