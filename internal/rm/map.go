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

// A Method is how memory was mapped.
type Method string

const (
	MethodImport    Method = "import"    // exported as a descriptor, imported by our client
	MethodDuplicate Method = "duplicate" // duplicated from CUDA's client
	MethodDMABuf    Method = "dma-buf"   // exported as a dma-buf, which was mapped itself
)

// A request is a range of an allocation.
type request struct {
	addr  gpu.Addr
	n     uint64
	alloc gpu.Pointer
}

// An extent is a range of whole pages that contains the request, at skip.
type extent struct{ off, n, skip uint64 }

// pages rounds the request to whole pages. off is its offset in the mapped object.
func (r request) pages(off uint64) extent {
	page := uint64(os.Getpagesize())
	skip := off % page
	return extent{off - skip, (skip + r.n + page - 1) / page * page, skip}
}

// mapRequest tries the methods for the kind of memory, documented ones first.
func (m *Mapper) mapRequest(r request) (*Mapping, error) {
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
		var w *Mapping
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

// byImport exports the allocation and imports it. CUDA maps such memory from its
// start, so offsets in the allocation are offsets in the object.
func (m *Mapper) byImport(d *device, r request) (*Mapping, error) {
	f, err := m.gpu.Export(r.alloc.Base, r.alloc.Size, gpu.ExportPosixFD)
	if err != nil {
		return nil, &Unavailable{
			Test: "export", Err: err,
			Fix: "allocate the memory through Culvert, or with the handle type POSIX_FILE_DESCRIPTOR",
		}
	}
	defer f.Close()
	return d.mapFile(f, r, uint64(r.addr-r.alloc.Base))
}

// byDuplicate uses duplicate after a test that it works, and compares the result.
func (m *Mapper) byDuplicate(d *device, r request) (*Mapping, error) {
	m.trial.Do(func() { m.trialErr = m.try(d) })
	if m.trialErr != nil {
		return nil, m.trialErr
	}
	w, err := m.duplicate(d, r)
	if err != nil {
		return nil, err
	}
	return m.compared(w)
}

// duplicate duplicates the object that CUDA names in an IPC handle.
func (m *Mapper) duplicate(d *device, r request) (*Mapping, error) {
	x, ok := m.gpu.(IPCExporter)
	if !ok {
		return nil, unavailable("IPC handle", errors.New("not supported by the driver of this GPU"))
	}
	b, err := x.IPCHandle(r.alloc.Base)
	if err != nil {
		return nil, &Unavailable{
			Test: "IPC handle", Err: err,
			Fix: "memory of a pool (cuMemAllocAsync) has none: allocate with Culvert or cuMemAlloc",
		}
	}
	h := nvrm.ParseIPC(b)
	if err := plausible(h, os.Getpid(), r); err != nil {
		return nil, unavailable("IPC handle", err)
	}
	return d.mapRange(d.duplicate(h.HClient, h.HMemory), r, uint64(h.Offset)+uint64(r.addr-r.alloc.Base), MethodDuplicate)
}

// plausible checks that a handle can be one of the allocation.
func plausible(h nvrm.IPCMemHandle, pid int, r request) error {
	object := uint64(h.Pages) * nvrm.IPCPageSize
	end := uint64(r.addr-r.alloc.Base) + r.n
	switch {
	case int64(h.PID) != int64(pid):
		return fmt.Errorf("process %d, want %d", h.PID, pid)
	case h.HClient == 0 || h.HMemory == 0:
		return errors.New("no object")
	case h.Size == 0 || h.Size > r.alloc.Size:
		return fmt.Errorf("size %d exceeds the allocation of %d bytes", h.Size, r.alloc.Size)
	case uint64(h.Offset) > object || end > object-uint64(h.Offset):
		return fmt.Errorf("byte %d of the allocation, at offset %#x, exceeds the object of %d bytes", end, h.Offset, object)
	}
	return nil
}

// mapFile imports the object of a descriptor and maps the request at off.
func (d *device) mapFile(f *os.File, r request, off uint64) (w *Mapping, err error) {
	conn, err := f.SyscallConn() // Fd would change the mode of the file
	if err != nil {
		return nil, err
	}
	err = os.ErrClosed // the only reason why Control does not call the function
	_ = conn.Control(func(fd uintptr) { w, err = d.mapRange(d.importFD(int(fd)), r, off, MethodImport) })
	return w, err
}

// mapRange creates an object and maps the request at off of it.
func (d *device) mapRange(create func(nvrm.Handle) error, r request, off uint64, method Method) (*Mapping, error) {
	e := r.pages(off)
	o, err := d.mapObject(create, e.off, e.n)
	if err != nil {
		return nil, err
	}
	return newMapping(r, e, method, dev.Bytes(o.mem), o.unmap), nil
}

func (m *Mapper) mapsDMABuf() bool {
	v, err := m.gpu.Attribute(abi.AttrDMABufMmap)
	return err == nil && v == 1
}

// byDMABuf maps an exported dma-buf. It must consist of whole pages, which an
// allocation need not.
func (m *Mapper) byDMABuf(r request) (*Mapping, error) {
	e := r.pages(uint64(r.addr))
	if a := gpu.Addr(e.off); !r.alloc.Contains(a, e.n) {
		return nil, unavailable("dma-buf", errors.New("allocation does not fill its pages"))
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
	return m.compared(newMapping(r, e, MethodDMABuf, dev.Bytes(mp), mp.Unmap))
}

// ImportFile maps the first n bytes of memory behind a descriptor that another
// process exported. It needs no driver library, only the PCI address of the GPU.
func ImportFile(o dev.OS, pci string, f *os.File, n uint64) (*Mapping, error) {
	m, err := importFile(o, pci, f, n)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes of %s on the GPU at %s: %w", n, f.Name(), pci, err)
	}
	return m, nil
}

func importFile(o dev.OS, pci string, f *os.File, n uint64) (m *Mapping, err error) {
	if n == 0 || n > maxInt {
		return nil, gpu.ErrInvalidValue
	}
	c, err := Open(o)
	if err != nil {
		return nil, err
	}
	d, err := c.device(pci)
	if err == nil {
		m, err = d.mapFile(f, request{n: n}, 0)
	}
	// The mapping keeps the client alive.
	if cerr := c.Close(); cerr != nil {
		return nil, errors.Join(err, cerr)
	}
	return m, err
}
