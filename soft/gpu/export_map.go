package gpu

import (
	"errors"
	"syscall"

	"github.com/culvert-io/culvert/gpu"
)

// An ExportVMA is memory of a dma-buf in the process's address space. It keeps the memory,
// also if the descriptor is closed and the memory freed.
type ExportVMA struct {
	*VMA
	access *Access
}

// Unmap removes the mapping. A second call does nothing.
func (v *ExportVMA) Unmap() error {
	err := v.VMA.Unmap()
	if err == nil {
		v.access.Release()
	}
	return err
}

// MapExport maps n bytes from off of a dma-buf, whole pages, as mmap of the descriptor does
// on hardware. Errors are those of the kernel: EINVAL outside of the dma-buf, ENODEV for
// anything that is no dma-buf of this driver.
func (d *Driver) MapExport(fd int, off int64, n uint64, prot int) (*ExportVMA, error) {
	access, err := d.accessDMABuf(fd)
	if err != nil {
		return nil, err
	}
	v, err := access.mapWithin(off, n, prot)
	if err != nil {
		access.Release()
		return nil, err
	}
	return &ExportVMA{v, access}, nil
}

// accessDMABuf is AcquireExport for dma-bufs.
func (d *Driver) accessDMABuf(fd int) (*Access, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e, err := d.exportOf(fd)
	switch {
	case err != nil:
		return nil, errors.Join(syscall.EBADF, err)
	case e == nil || e.form != gpu.ExportDMABuf:
		return nil, syscall.ENODEV
	}
	return d.newAccess(e.blk, e.off, e.size), nil
}

// mapWithin is Mmap for a range that a program chose.
func (a *Access) mapWithin(off int64, n uint64, prot int) (*VMA, error) {
	const page = 4096
	n = roundUp(n, page)
	if off < 0 || off%page != 0 || n == 0 || uint64(off) > a.n || n > a.n-uint64(off) {
		return nil, syscall.EINVAL
	}
	return a.Mmap(uint64(off), n, prot)
}
