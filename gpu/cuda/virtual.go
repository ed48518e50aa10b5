package cuda

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	abi "github.com/culvert-io/culvert/internal/abi/cuda"
)

// allocVirtual makes physical memory, maps it and releases the handle: the
// mapping keeps the memory, and Export can retain a handle again. Where the GPU
// supports it, the memory can be exported and other devices can access it.
func (d *Device) allocVirtual(n uint64) (gpu.Addr, error) {
	create := &d.symbols.cuMemCreate
	if err := d.check(create, d.enter(), n); err != nil {
		return 0, err
	}
	defer d.leave()
	prop, size, err := d.virtualProp(n)
	if err != nil {
		return 0, err
	}
	handle := new(uint64)
	c := create.call(ref(handle), uintptr(size), ref(prop), 0)
	runtime.KeepAlive(prop)
	if err := d.check(create, c, size); err != nil {
		return 0, err
	}
	return d.mapHandle(*handle, size)
}

// virtualProp describes virtual memory of n bytes, and rounds n up to the
// driver's granularity.
func (d *Device) virtualProp(n uint64) (p *memAllocationProp, size uint64, err error) {
	p = &memAllocationProp{
		Type:     memAllocationPinned,
		Location: memLocation{Type: memLocationTypeDevice, ID: d.dev},
	}
	fd, err := d.Attribute(abi.AttrPosixFDHandles)
	if err != nil {
		return nil, 0, err
	}
	if fd != 0 {
		p.RequestedHandleTypes = memHandlePosixFD
	}
	// Drivers that do not know this attribute do not know the flag either.
	if rdma, err := d.Attribute(abi.AttrGPUDirectRDMAWithVMM); err == nil && rdma != 0 {
		p.GPUDirectRDMACapable = 1
	}
	g := new(uint64)
	s := &d.symbols.cuMemGetAllocationGranularity
	c := s.call(ref(g), ref(p), memGranularityMinimum)
	runtime.KeepAlive(p)
	if err := d.check(s, c); err != nil {
		return nil, 0, err
	}
	size = (n + *g - 1) / *g * *g
	if size < n {
		return nil, 0, d.fail(&d.symbols.cuMemCreate, gpu.ErrOutOfMemory, "", n)
	}
	return p, size, nil
}

// mapHandle maps the memory of a handle and releases the handle.
func (d *Device) mapHandle(handle, size uint64) (gpu.Addr, error) {
	a, err := d.mapAt(handle, size)
	s := &d.symbols.cuMemRelease
	if rerr := d.check(s, s.call(uintptr(handle))); rerr != nil && err == nil {
		err = errors.Join(rerr, d.unmap(a, size))
	}
	if err != nil {
		return 0, err
	}
	d.allocs.made.Store(a, allocation{gpu.KindVirtual, size})
	return a, nil
}

func (d *Device) mapAt(handle, size uint64) (gpu.Addr, error) {
	a := new(gpu.Addr)
	s := &d.symbols.cuMemAddressReserve
	if err := d.check(s, s.call(ref(a), uintptr(size), 0, 0, 0), size); err != nil {
		return 0, err
	}
	s = &d.symbols.cuMemMap
	if err := d.check(s, s.call(uintptr(*a), uintptr(size), 0, uintptr(handle), 0), *a, size); err != nil {
		return 0, errors.Join(err, d.unreserve(*a, size))
	}
	access := &memAccessDesc{Location: memLocation{Type: memLocationTypeDevice, ID: d.dev}, Flags: memAccessReadWrite}
	s = &d.symbols.cuMemSetAccess
	c := s.call(uintptr(*a), uintptr(size), ref(access), 1)
	runtime.KeepAlive(access)
	if err := d.check(s, c, *a, size); err != nil {
		return 0, errors.Join(err, d.unmap(*a, size))
	}
	return *a, nil
}

// unmap frees virtual memory. It waits for running work, as the driver itself
// does for other kinds of memory.
func (d *Device) unmap(a gpu.Addr, size uint64) error {
	s := &d.symbols.cuCtxSynchronize
	if err := d.check(s, s.call()); err != nil {
		return err
	}
	s = &d.symbols.cuMemUnmap
	if err := d.check(s, s.call(uintptr(a), uintptr(size)), a, size); err != nil {
		return err
	}
	d.drv.imports.Delete(a)
	return d.unreserve(a, size)
}

func (d *Device) unreserve(a gpu.Addr, size uint64) error {
	s := &d.symbols.cuMemAddressFree
	return d.check(s, s.call(uintptr(a), uintptr(size)), a, size)
}

// Export makes a descriptor for memory. ExportPosixFD exports the whole mapping
// that contains a, also one that another library made; n must not be 0.
func (d *Device) Export(a gpu.Addr, n uint64, as gpu.Export) (*os.File, error) {
	switch as {
	case gpu.ExportPosixFD:
		return d.exportPosixFD(a, n)
	case gpu.ExportDMABuf:
		return d.exportDMABuf(a, n, 0)
	case gpu.ExportDMABufPCIe:
		if v := d.drv.Version(); v < pcieMappingVersion {
			return nil, d.fail(&d.symbols.cuMemGetHandleForAddressRange, gpu.ErrNotSupported, fmt.Sprintf("CUDA %s has no dma-buf of PCIe addresses, 12.8 has", versionText(v)), a, n)
		}
		return d.exportDMABuf(a, n, memRangePCIe)
	}
	return nil, d.fail(&d.symbols.cuMemExportToShareableHandle, gpu.ErrInvalidValue, "unknown kind of export", a, n)
}

func (d *Device) exportPosixFD(a gpu.Addr, n uint64) (*os.File, error) {
	export, retain, release := &d.symbols.cuMemExportToShareableHandle, &d.symbols.cuMemRetainAllocationHandle, &d.symbols.cuMemRelease
	if n == 0 {
		return nil, d.fail(export, gpu.ErrInvalidValue, "size 0", a, n)
	}
	if err := d.check(export, d.enter(), a, n); err != nil {
		return nil, err
	}
	defer d.leave()
	handle, fd := new(uint64), new(int32)
	if c := retain.call(ref(handle), uintptr(a)); c != gpu.Success {
		return nil, d.fail(retain, c, "only virtual memory has a handle", a)
	}
	c := export.call(ref(fd), uintptr(*handle), memHandlePosixFD, 0)
	if rc := release.call(uintptr(*handle)); rc != gpu.Success && c == gpu.Success {
		return nil, errors.Join(d.fail(release, rc, ""), unix.Close(int(*fd)))
	}
	if err := d.check(export, c, a, n); err != nil {
		return nil, err
	}
	return exported("cuda:"+a.String(), *fd), nil
}

// pcieMappingVersion is the first version of CUDA that knows memRangePCIe, which is
// CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE.
const (
	pcieMappingVersion = 12080
	memRangePCIe       = 1
)

func (d *Device) exportDMABuf(a gpu.Addr, n uint64, flags uint64) (*os.File, error) {
	fd, err := get[int32](d, &d.symbols.cuMemGetHandleForAddressRange, a, n, memRangeDMABuf, flags)
	if err != nil {
		return nil, err
	}
	return exported("dma-buf:"+a.String(), fd), nil
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
	if err := d.check(s, d.enter(), f.Name(), n); err != nil {
		return 0, err
	}
	defer d.leave()
	_, size, err := d.virtualProp(n)
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
	if err := d.check(s, c, f.Name(), n); err != nil {
		return 0, err
	}
	a, err := d.mapHandle(*handle, size)
	if err == nil {
		d.drv.imports.Store(a, nil)
	}
	return a, err
}
