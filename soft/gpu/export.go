package gpu

import (
	"cmp"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	abi "github.com/culvert-io/culvert/internal/abi/cuda"
)

// An export is memory with a descriptor, which is the reading end of a pipe. Like a real
// one it has an identity (the pipe's inode), keeps the memory while any duplicate is open
// in any process (the writing end can tell). If processes share the
// memory, the pipe contains a label by which they can import it; otherwise it is empty,
// and only the driver that made the export can. Unlike a real one it keeps the memory no
// longer than the process that made it, unless another has imported it, and that process
// notices the last close in its next call that allocates or frees.
//
// The kernel cannot map a pipe (ENODEV). MapExport is mmap of a dma-buf, for libraries that
// take the place of the C library's mmap.
type export struct {
	form   gpu.Export
	blk    *block
	off    uint64 // in the block
	size   uint64
	addr   gpu.Addr // at the time of the export
	id     inode
	writer int
}

type inode struct{ dev, ino uint64 }

func inodeOf(fd int) (inode, error) {
	var st unix.Stat_t
	err := os.NewSyscallError("fstat", unix.Fstat(fd, &st))
	return inode{st.Dev, st.Ino}, err
}

// Export returns a descriptor for memory. As ExportPosixFD it is of the whole allocation
// at a, whatever n is.
func (x *Device) Export(a gpu.Addr, n uint64, as gpu.Export) (*os.File, error) {
	op := "cuMemGetHandleForAddressRange"
	if as == gpu.ExportPosixFD {
		op = "cuMemExportToShareableHandle"
	}
	op = fmt.Sprintf("%s(%v, %d)", op, a, n)
	if as == gpu.ExportDMABufPCIe {
		as = gpu.ExportDMABuf // whose addresses are always those of the BAR here
	}
	if err := x.check(op); err != nil {
		return nil, err
	}
	d := x.ctx.drv
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sweep()
	r := d.regions.Find(a)
	if err := exportable(x.ctx.card, r, a, n, as); err != nil {
		return nil, fail(op, err)
	}
	e := &export{form: as, blk: r.blk, off: r.off + uint64(a-r.base), size: n, addr: a}
	if as == gpu.ExportPosixFD {
		e.off, e.size, e.addr = r.off, r.blk.size, r.base // the descriptor is of the whole object
	}
	return d.addExport(op, e)
}

// Export returns a descriptor for all of the memory, as ExportPosixFD.
func (p *Physical) Export() (*os.File, error) {
	d := p.blk.card.drv
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sweep()
	e := &export{form: gpu.ExportPosixFD, blk: p.blk, size: p.blk.size}
	op := fmt.Sprintf("cuMemExportToShareableHandle(%d bytes)", e.size)
	if p.blk.private {
		return nil, gpu.Fail(op, gpu.ErrInvalidValue, noHandle)
	}
	return d.addExport(op, e)
}

const noHandle = "the memory was created without a handle type"

func exportable(g *GPU, r *region, a gpu.Addr, n uint64, as gpu.Export) error {
	const page = 4096 // both dma-buf exporters want whole pages of the host
	switch {
	case as != gpu.ExportPosixFD && as != gpu.ExportDMABuf:
		return refuse(gpu.ErrInvalidValue, "unknown form %d", as)
	case as == gpu.ExportDMABuf && !g.has(abi.AttrDMABuf):
		return refuse(gpu.ErrNotSupported, "%s has no DMA_BUF_SUPPORTED", g.model.Name)
	case r == nil || !r.kind.OnDevice():
		return refuse(gpu.ErrInvalidValue, "not device memory")
	case n == 0:
		return refuse(gpu.ErrInvalidValue, "size 0")
	case as == gpu.ExportPosixFD && r.kind != gpu.KindVirtual:
		return refuse(gpu.ErrInvalidValue, "only virtual memory has a handle; this is %v memory", r.kind)
	case as == gpu.ExportPosixFD && r.blk.private:
		return refuse(gpu.ErrInvalidValue, "%s", noHandle)
	case as == gpu.ExportDMABuf && n > r.blk.size-r.off-uint64(a-r.base):
		// Small allocations share a block and its pages: GDRCopy exports the pages around one.
		return refuse(gpu.ErrInvalidValue, "the range must lie in one block: %d bytes at %v", r.blk.size, r.base-gpu.Addr(r.off))
	case as == gpu.ExportDMABuf && (uint64(a)%page != 0 || n%page != 0):
		return refuse(gpu.ErrInvalidValue, "address and size must be multiples of 4096")
	}
	return nil
}

// addExport makes the descriptor. Call with d.mu held.
func (d *Driver) addExport(op string, e *export) (*os.File, error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, gpu.Fail(op, gpu.ErrOperatingSystem, os.NewSyscallError("pipe2", err).Error())
	}
	f := os.NewFile(uintptr(fds[0]), "gpu-memory")
	var err error
	if d.cards != nil && e.form == gpu.ExportPosixFD {
		_, err = unix.Write(fds[1], d.label(e.blk)) // fits into any pipe
	}
	if err == nil {
		e.id, err = inodeOf(fds[0])
	}
	if err != nil {
		_ = unix.Close(fds[1])
		return nil, closeAfter(f, gpu.Fail(op, gpu.ErrOperatingSystem, err.Error()))
	}
	e.writer = fds[1]
	e.blk.holds++
	d.exports[e.id] = e
	return f, nil
}

// exportOf returns what fd was made for, or nil. Call with d.mu held.
func (d *Driver) exportOf(fd int) (*export, error) {
	d.sweep()
	id, err := inodeOf(fd)
	return d.exports[id], err
}

const notExported = "not a descriptor of memory that this driver exported"

// sweep removes exports whose last descriptor was closed. Call with d.mu held.
func (d *Driver) sweep() {
	for _, e := range d.exports {
		p := []unix.PollFd{{Fd: int32(e.writer)}}
		if _, err := unix.Poll(p, 0); err == nil && p[0].Revents&unix.POLLERR != 0 {
			d.unexport(e)
		}
	}
}

func (d *Driver) unexport(e *export) {
	delete(d.exports, e.id)
	_ = unix.Close(e.writer) // nothing was written, so nothing can be lost
	d.drop(e.blk)
}

// Import maps all memory of an ExportPosixFD export of this driver, or of a process with
// the same [Config.Shared]. Errors for other descriptors are CUDA's.
func (x *Device) Import(f *os.File, n uint64) (gpu.Addr, error) {
	op := fmt.Sprintf("cuMemImportFromShareableHandle(%s, %d)", f.Name(), n)
	if err := x.check(op); err != nil {
		return 0, err
	}
	if n == 0 {
		return 0, gpu.Fail(op, gpu.ErrInvalidValue, "size 0")
	}
	d := x.ctx.drv
	d.mu.Lock()
	defer d.mu.Unlock()
	var b *block
	conn, err := f.SyscallConn()
	if err == nil {
		var failed error
		err = conn.Control(func(fd uintptr) { b, failed = d.fromImport(int(fd)) })
		err = cmp.Or(failed, err)
	}
	switch _, refused := err.(*refusal); {
	case refused:
		return 0, fail(op, err)
	case err != nil:
		return 0, gpu.Fail(op, gpu.ErrInvalidValue, err.Error())
	}
	defer d.drop(b)
	switch {
	case b.card != x.ctx.card:
		return 0, gpu.Fail(op, gpu.ErrInvalidDevice, fmt.Sprintf("the memory is of GPU %d", b.card.index))
	case n > b.size || roundUp(n, blockSize) != b.size:
		return 0, gpu.Fail(op, gpu.ErrNotSupported, fmt.Sprintf("%d bytes were exported, and all must be mapped", b.size))
	}
	r := &region{kind: gpu.KindVirtual, size: b.size, blk: b, dev: x}
	if !x.ctx.card.place(r) {
		return 0, gpu.Fail(op, gpu.ErrOutOfMemory, "no device addresses left")
	}
	return r.base, nil
}

// Import returns the memory of an ExportPosixFD export, as Device.Import does, without an
// address. Release frees it.
func (d *Driver) Import(fd int) (*Physical, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	b, err := d.fromImport(fd)
	if err != nil {
		return nil, fail(fmt.Sprintf("cuMemImportFromShareableHandle(%d)", fd), err)
	}
	return &Physical{b}, nil
}

// AcquireExport gives access to all memory behind a descriptor that gpu.Device.Export
// made, of either form.
func (d *Driver) AcquireExport(fd int) (*Access, error) {
	op := fmt.Sprintf("acquire export(%d)", fd)
	d.mu.Lock()
	defer d.mu.Unlock()
	e, err := d.exportOf(fd)
	switch {
	case err != nil:
		return nil, gpu.Fail(op, gpu.ErrInvalidValue, err.Error())
	case e == nil:
		return nil, gpu.Fail(op, gpu.ErrInvalidValue, notExported)
	}
	return d.newAccess(e.blk, e.off, e.size), nil
}

// ExportedAs returns the GPU addresses of a dma-buf that gpu.Device.Export made. They must
// still be of the same memory.
func (d *Driver) ExportedAs(fd int) (a gpu.Addr, n uint64, err error) {
	op := fmt.Sprintf("import dma-buf(%d)", fd)
	d.mu.Lock()
	defer d.mu.Unlock()
	e, err := d.exportOf(fd)
	switch {
	case err != nil:
		return 0, 0, gpu.Fail(op, gpu.ErrInvalidValue, err.Error())
	case e == nil || e.form != gpu.ExportDMABuf:
		return 0, 0, gpu.Fail(op, gpu.ErrInvalidValue, "not a dma-buf of this driver")
	}
	if r := d.regions.Find(e.addr); r == nil || r.blk != e.blk {
		return 0, 0, gpu.Fail(op, gpu.ErrInvalidValue, "the memory was freed before the import")
	}
	return e.addr, e.size, nil
}
