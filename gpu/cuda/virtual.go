package cuda

import (
	"errors"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	abi "github.com/culvert-io/culvert/internal/abi/cuda"
)

// allocVirtual makes physical memory, maps it and drops the handle: the
// mapping keeps the memory, and export can ask for a handle again. Memory is
// exportable as a descriptor and reachable by other devices where the GPU
// offers that.
func (d *Device) allocVirtual(n uint64, f gpu.Flags) (gpu.Addr, error) {
	create := &d.symbols.cuMemCreate
	if f != 0 {
		return 0, d.fail(create, gpu.ErrInvalidValue, "virtual memory takes no flags", n)
	}
	if c := d.enter(); c != gpu.Success {
		return 0, d.fail(create, c, "", n)
	}
	defer d.leave()
	prop, err := d.virtualProp()
	if err != nil {
		return 0, err
	}
	size, err := d.granular(n, prop)
	if err != nil {
		return 0, err
	}
	handle := new(uint64)
	c := create.call(ref(handle), uintptr(size), ref(prop), 0)
	runtime.KeepAlive(prop)
	if c != gpu.Success {
		return 0, d.fail(create, c, "", size)
	}
	return d.mapHandle(*handle, size)
}

func (d *Device) virtualProp() (*memAllocationProp, error) {
	p := &memAllocationProp{
		Type:     memAllocationPinned,
		Location: memLocation{Type: memLocationTypeDevice, ID: d.dev},
	}
	fd, err := d.Attribute(abi.AttrPosixFDHandles)
	if err != nil {
		return nil, err
	}
	if fd != 0 {
		p.RequestedHandleTypes = memHandlePosixFD
	}
	// Drivers that do not know this attribute do not know the flag either.
	if rdma, err := d.Attribute(abi.AttrGPUDirectRDMAWithVMM); err == nil && rdma != 0 {
		p.GPUDirectRDMACapable = 1
	}
	return p, nil
}

// granular rounds n up to what the driver maps.
func (d *Device) granular(n uint64, prop *memAllocationProp) (uint64, error) {
	g := new(uint64)
	s := &d.symbols.cuMemGetAllocationGranularity
	c := s.call(ref(g), ref(prop), memGranularityMinimum)
	runtime.KeepAlive(prop)
	if c != gpu.Success {
		return 0, d.fail(s, c, "")
	}
	size := (n + *g - 1) / *g * *g
	if size < n {
		return 0, d.fail(&d.symbols.cuMemCreate, gpu.ErrOutOfMemory, "", n)
	}
	return size, nil
}

// mapHandle gives memory an address, and the handle away.
func (d *Device) mapHandle(handle, size uint64) (gpu.Addr, error) {
	a, err := d.mapAt(handle, size)
	s := &d.symbols.cuMemRelease
	if c := s.call(uintptr(handle)); c != gpu.Success && err == nil {
		err = errors.Join(d.fail(s, c, ""), d.unmap(a, size))
	}
	if err != nil {
		return 0, err
	}
	d.allocs.add(a, allocation{gpu.KindVirtual, size})
	return a, nil
}

func (d *Device) mapAt(handle, size uint64) (gpu.Addr, error) {
	a := new(gpu.Addr)
	s := &d.symbols.cuMemAddressReserve
	if c := s.call(ref(a), uintptr(size), 0, 0, 0); c != gpu.Success {
		return 0, d.fail(s, c, "", size)
	}
	s = &d.symbols.cuMemMap
	if c := s.call(uintptr(*a), uintptr(size), 0, uintptr(handle), 0); c != gpu.Success {
		return 0, errors.Join(d.fail(s, c, "", *a, size), d.unreserve(*a, size))
	}
	access := &memAccessDesc{Location: memLocation{Type: memLocationTypeDevice, ID: d.dev}, Flags: memAccessReadWrite}
	s = &d.symbols.cuMemSetAccess
	c := s.call(uintptr(*a), uintptr(size), ref(access), 1)
	runtime.KeepAlive(access)
	if c != gpu.Success {
		return 0, errors.Join(d.fail(s, c, "", *a, size), d.unmap(*a, size))
	}
	return *a, nil
}

// unmap frees virtual memory. Other kinds of memory are freed only when the
// work that uses them has finished; here that must be waited for.
func (d *Device) unmap(a gpu.Addr, size uint64) error {
	s := &d.symbols.cuCtxSynchronize
	if c := s.call(); c != gpu.Success {
		return d.fail(s, c, "")
	}
	s = &d.symbols.cuMemUnmap
	if c := s.call(uintptr(a), uintptr(size)); c != gpu.Success {
		return d.fail(s, c, "", a, size)
	}
	d.drv.imports.Delete(a)
	return d.unreserve(a, size)
}

func (d *Device) unreserve(a gpu.Addr, size uint64) error {
	s := &d.symbols.cuMemAddressFree
	if c := s.call(uintptr(a), uintptr(size)); c != gpu.Success {
		return d.fail(s, c, "", a, size)
	}
	return nil
}

// Export gives memory a descriptor. As ExportPosixFD it stands for the whole
// mapping that a lies in, whoever made it; n must not be 0.
func (d *Device) Export(a gpu.Addr, n uint64, as gpu.Export) (*os.File, error) {
	switch as {
	case gpu.ExportPosixFD:
		return d.exportPosixFD(a, n)
	case gpu.ExportDMABuf:
		return d.exportDMABuf(a, n)
	}
	return nil, d.fail(&d.symbols.cuMemExportToShareableHandle, gpu.ErrInvalidValue, "unknown form of export", a, n)
}

func (d *Device) exportPosixFD(a gpu.Addr, n uint64) (*os.File, error) {
	export, retain, release := &d.symbols.cuMemExportToShareableHandle, &d.symbols.cuMemRetainAllocationHandle, &d.symbols.cuMemRelease
	if n == 0 {
		return nil, d.fail(export, gpu.ErrInvalidValue, "size 0", a, n)
	}
	if c := d.enter(); c != gpu.Success {
		return nil, d.fail(export, c, "", a, n)
	}
	defer d.leave()
	handle, fd := new(uint64), new(int32)
	if c := retain.call(ref(handle), uintptr(a)); c != gpu.Success {
		return nil, d.fail(retain, c, "only memory of kind virtual has a handle", a)
	}
	c := export.call(ref(fd), uintptr(*handle), memHandlePosixFD, 0)
	if rc := release.call(uintptr(*handle)); rc != gpu.Success && c == gpu.Success {
		return nil, errors.Join(d.fail(release, rc, ""), unix.Close(int(*fd)))
	}
	if c != gpu.Success {
		return nil, d.fail(export, c, "", a, n)
	}
	return exported("cuda:"+a.String(), *fd), nil
}

func (d *Device) exportDMABuf(a gpu.Addr, n uint64) (*os.File, error) {
	fd := new(int32)
	s := &d.symbols.cuMemGetHandleForAddressRange
	if c := d.call(s, ref(fd), uintptr(a), uintptr(n), memRangeDMABuf, 0); c != gpu.Success {
		return nil, d.fail(s, c, "", a, n)
	}
	return exported("dma-buf:"+a.String(), *fd), nil
}

func exported(name string, fd int32) *os.File {
	unix.CloseOnExec(int(fd))
	return os.NewFile(uintptr(fd), name)
}

// Import maps n bytes of exported memory. The file is not needed afterwards.
func (d *Device) Import(f *os.File, n uint64) (gpu.Addr, error) {
	s := &d.symbols.cuMemImportFromShareableHandle
	if n == 0 {
		return 0, d.fail(s, gpu.ErrInvalidValue, "size 0", f.Name(), n)
	}
	if c := d.enter(); c != gpu.Success {
		return 0, d.fail(s, c, "", f.Name(), n)
	}
	defer d.leave()
	prop, err := d.virtualProp()
	if err != nil {
		return 0, err
	}
	size, err := d.granular(n, prop)
	if err != nil {
		return 0, err
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return 0, d.fail(s, gpu.ErrInvalidValue, err.Error(), f.Name(), n)
	}
	handle := new(uint64)
	var c gpu.Code
	if err := conn.Control(func(fd uintptr) { c = s.call(ref(handle), fd, memHandlePosixFD) }); err != nil {
		return 0, d.fail(s, gpu.ErrInvalidValue, err.Error(), f.Name(), n)
	}
	if c != gpu.Success {
		return 0, d.fail(s, c, "", f.Name(), n)
	}
	a, err := d.mapHandle(*handle, size)
	if err == nil {
		d.drv.imports.Store(a, nil)
	}
	return a, err
}
