package rm

import (
	"errors"
	"fmt"
	"os"

	"github.com/culvert-io/culvert/gpu"
	abi "github.com/culvert-io/culvert/internal/abi/cuda"
	"github.com/culvert-io/culvert/internal/abi/nvrm"
	"github.com/culvert-io/culvert/internal/dev"
)

// A Way is how memory came to be mapped.
type Way uint8

const (
	WayImport    Way = iota + 1 // exported as a descriptor, imported by our client
	WayDuplicate                // duplicated out of CUDA's client
	WayDMABuf                   // exported as a dma-buf, which was mapped itself
)

func (w Way) String() string {
	switch w {
	case WayImport:
		return "import"
	case WayDuplicate:
		return "duplicate"
	case WayDMABuf:
		return "dma-buf"
	}
	return fmt.Sprintf("Way(%d)", w)
}

// A request is a range of an allocation.
type request struct {
	addr  gpu.Addr
	n     uint64
	alloc gpu.Pointer
}

// extent is a range in whole pages that holds the request, which begins at skip.
type extent struct{ off, n, skip uint64 }

// pages rounds the request to pages, where off is its place in what is mapped.
func (r request) pages(off uint64) extent {
	page := uint64(os.Getpagesize())
	skip := off % page
	return extent{off - skip, (skip + r.n + page - 1) / page * page, skip}
}

// ladder tries the ways that fit the memory, the documented first.
func (m *Mapper) ladder(r request) (*Window, error) {
	var declined error
	if m.mapsDMABuf() {
		w, err := m.byDMABuf(r)
		if err == nil {
			return w, nil
		}
		declined = err
	}
	d, err := m.open()
	if err == nil {
		var w *Window
		if r.alloc.Kind == gpu.KindVirtual {
			w, err = m.byImport(d, r)
		} else {
			w, err = m.byDuplicate(d, r)
		}
		if err == nil {
			return w, nil
		}
	}
	if declined != nil {
		return nil, fmt.Errorf("%w; %w", declined, err)
	}
	return nil, err
}

// byImport exports the allocation and imports it. CUDA maps such memory from
// its beginning, so offsets in the allocation are offsets in the object.
func (m *Mapper) byImport(d *Device, r request) (*Window, error) {
	f, err := m.gpu.Export(r.alloc.Base, r.alloc.Size, gpu.ExportPosixFD)
	if err != nil {
		return nil, &Unavailable{
			Test: "export", Err: err,
			Fix: "allocate the memory through Culvert, or with the handle type POSIX_FILE_DESCRIPTOR",
		}
	}
	defer f.Close()
	var obj *Object
	if err := withFd(f, func(fd int) error { obj, err = d.Import(fd); return err }); err != nil {
		return nil, err
	}
	return window(obj, r, uint64(r.addr-r.alloc.Base), WayImport)
}

// byDuplicate goes the way of duplicate once it has shown that it leads there.
func (m *Mapper) byDuplicate(d *Device, r request) (*Window, error) {
	if err := m.try(d); err != nil {
		return nil, err
	}
	w, err := m.duplicate(d, r)
	if err != nil {
		return nil, err
	}
	return m.compared(w)
}

// duplicate follows the handles that CUDA puts into an IPC handle.
func (m *Mapper) duplicate(d *Device, r request) (*Window, error) {
	x, ok := m.gpu.(IPCExporter)
	if !ok {
		return nil, unavailable("IPC handle", errors.New("this GPU's driver gives none out"))
	}
	b, err := x.IPCHandle(r.alloc.Base)
	if err != nil {
		return nil, &Unavailable{
			Test: "IPC handle", Err: err,
			Fix: "memory of a pool (cuMemAllocAsync) has none: allocate it through Culvert or with cuMemAlloc",
		}
	}
	h := nvrm.ParseIPC(b)
	if err := plausible(h, os.Getpid(), r); err != nil {
		return nil, unavailable("IPC handle", err)
	}
	obj, err := d.Dup(h.HClient, h.HMemory)
	if err != nil {
		return nil, err
	}
	return window(obj, r, uint64(h.Offset)+uint64(r.addr-r.alloc.Base), WayDuplicate)
}

// plausible says whether a handle can be what it is taken for.
func plausible(h nvrm.IPCMemHandle, pid int, r request) error {
	object := uint64(h.Pages) * nvrm.IPCPageSize
	end := uint64(r.addr-r.alloc.Base) + r.n
	switch {
	case int64(h.PID) != int64(pid):
		return fmt.Errorf("it names process %d, this is %d", h.PID, pid)
	case h.HClient == 0 || h.HMemory == 0:
		return errors.New("it holds no object")
	case h.Size == 0 || h.Size > r.alloc.Size:
		return fmt.Errorf("it is for %d bytes, the allocation has %d", h.Size, r.alloc.Size)
	case uint64(h.Offset) > object || end > object-uint64(h.Offset):
		return fmt.Errorf("byte %d of the allocation, at %#x, does not fit into its object of %d bytes", end, h.Offset, object)
	}
	return nil
}

// window maps the request at off of an object, which it takes over.
func window(obj *Object, r request, off uint64, way Way) (*Window, error) {
	e := r.pages(off)
	mp, err := obj.Map(e.off, e.n)
	// The mapping keeps the object from here on.
	if ferr := obj.Free(); err != nil || ferr != nil {
		if mp != nil {
			ferr = errors.Join(ferr, mp.Unmap())
		}
		return nil, errors.Join(err, ferr)
	}
	return &Window{base: r.addr, way: way, mem: mp.Bytes()[e.skip : e.skip+r.n : e.skip+r.n], unmap: mp.Unmap}, nil
}

func (m *Mapper) mapsDMABuf() bool {
	v, err := m.gpu.Attribute(abi.AttrDMABufMmap)
	return err == nil && v == 1
}

// byDMABuf maps an exported dma-buf. Such a buffer begins and ends at pages,
// which an allocation need not.
func (m *Mapper) byDMABuf(r request) (*Window, error) {
	e := r.pages(uint64(r.addr))
	if a := gpu.Addr(e.off); !r.alloc.Contains(a, e.n) {
		return nil, unavailable("dma-buf", errors.New("the allocation does not fill its pages"))
	}
	f, err := m.gpu.Export(gpu.Addr(e.off), e.n, gpu.ExportDMABuf)
	if err != nil {
		return nil, unavailable("dma-buf", err)
	}
	defer f.Close()
	mp, err := dev.MapFile(f, 0, int(e.n), protReadWrite)
	if err != nil {
		return nil, unavailable("dma-buf", err)
	}
	w := &Window{base: r.addr, way: WayDMABuf, mem: dev.Bytes(mp)[e.skip : e.skip+r.n : e.skip+r.n], unmap: mp.Unmap}
	return m.compared(w)
}

// withFd gives the number of f's descriptor to fn. Fd would do too, but changes
// the file's mode.
func withFd(f *os.File, fn func(fd int) error) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	err = os.ErrClosed // the one reason why the function is not called
	_ = conn.Control(func(fd uintptr) { err = fn(int(fd)) })
	return err
}

// ImportFile makes a window on the first n bytes of memory behind a descriptor
// that another process exported. It needs no driver library: only the PCI
// address of the GPU that the memory is on.
func ImportFile(o dev.OS, pci string, f *os.File, n uint64) (*Window, error) {
	w, err := importFile(o, pci, f, n)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes of %s, on the GPU at %s: %w", n, f.Name(), pci, err)
	}
	return w, nil
}

func importFile(o dev.OS, pci string, f *os.File, n uint64) (*Window, error) {
	if n == 0 || n > maxInt {
		return nil, gpu.ErrInvalidValue
	}
	c, err := Open(o)
	if err != nil {
		return nil, err
	}
	w, err := importInto(c, pci, f, n)
	// The window keeps what it needs of the client.
	if cerr := c.Close(); cerr != nil {
		return nil, errors.Join(err, cerr)
	}
	return w, err
}

func importInto(c *Client, pci string, f *os.File, n uint64) (*Window, error) {
	d, err := c.Device(pci)
	if err != nil {
		return nil, err
	}
	var obj *Object
	if err := withFd(f, func(fd int) error { obj, err = d.Import(fd); return err }); err != nil {
		return nil, err
	}
	return window(obj, request{n: n}, 0, WayImport)
}
