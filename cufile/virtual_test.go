package cufile_test

import (
	"bytes"
	"context"
	"os"
	"testing"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/machine"
)

// A pieced GPU has its virtual memory mapped in two pieces, as an allocator that
// grows its segments does. The second can be taken away.
type pieced struct {
	gpu.Device
	gone *bool
}

func (p pieced) Pointer(a gpu.Addr) (gpu.Pointer, error) {
	at, err := p.Device.Pointer(a)
	if err != nil || at.Kind != gpu.KindVirtual {
		return at, err
	}
	half := at.Size / 2
	switch first := uint64(a-at.Base) < half; {
	case first:
		at.Size = half
	case *p.gone:
		return gpu.Pointer{}, nil
	default:
		at.Base, at.Size = at.Base+gpu.Addr(half), at.Size-half
	}
	return at, nil
}

type piecedDriver struct {
	gpu.Driver
	gone bool
}

func (d *piecedDriver) Open(i int) (gpu.Device, error) {
	dev, err := d.Driver.Open(i)
	return pieced{dev, &d.gone}, err
}

// Memory that is mapped piece by piece without gaps is one range.
func TestRangesOfVirtualMemory(t *testing.T) {
	m := softMachine(t, softConfig())
	drv := &piecedDriver{Driver: m.GPU}
	f := newFixtureOn(t, dev.With(&machine.Machine{Soft: true, GPU: drv}, dev.Of(m)), 1<<20)
	a, err := f.dev.Alloc(gpu.KindVirtual, 4<<20, 0)
	if err != nil {
		t.Fatal(err)
	}
	whole := gpu.Span{Base: a, Len: 4 << 20}
	across := whole.Slice(2<<20-70_001, 140_000)
	h := f.open(os.O_RDONLY)
	read := func(mem gpu.Span) error { _, err := h.ReadAt(context.Background(), mem, 0); return err }
	check := func() {
		t.Helper()
		if err := read(across); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(f.gpuBytes(across), f.data[:140_000]) {
			t.Error("wrong bytes")
		}
	}
	check()
	if err := read(gpu.Span{Base: a, Off: 4<<20 - 5, Len: 10}); cufile.CodeOf(err) != cufile.CUDAPointerRangeError {
		t.Errorf("past the last piece: %v", err)
	}
	if _, err := f.drv.RegisterBuffer(a, 4<<20+1); cufile.CodeOf(err) != cufile.CUDAPointerRangeError {
		t.Errorf("registered past the last piece: %v", err)
	}
	buf, err := f.drv.RegisterBuffer(a, 4<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer buf.Close()
	check()
	drv.gone = true
	if err := read(whole.Slice(0, 2<<20)); err != nil {
		t.Errorf("the first piece is still there: %v", err)
	}
	for _, mem := range []gpu.Span{across, whole.Slice(2<<20, 1), whole} {
		if err := read(mem); cufile.CodeOf(err) != cufile.CUDAPointerInvalid {
			t.Errorf("%v, of which the second piece was freed: %v", mem, err)
		}
	}
}

// Allocations that only happen to be neighbours are not one range.
func TestNeighboursAreNotOneRange(t *testing.T) {
	f := newFixture(t, softConfig(), 1<<20)
	first, second := f.alloc(2<<20), f.alloc(2<<20)
	for range 20 {
		if second == first+2<<20 {
			break
		}
		first, second = second, f.alloc(2<<20)
	}
	if second != first+2<<20 {
		t.Skip("needs a GPU that hands addresses out in turn")
	}
	_, err := f.open(os.O_RDONLY).ReadAt(context.Background(), gpu.Span{Base: first, Off: 2<<20 - 5, Len: 10}, 0)
	if cufile.CodeOf(err) != cufile.CUDAPointerRangeError {
		t.Errorf("read: %v", err)
	}
	if _, err := f.drv.RegisterBuffer(first, 4<<20); cufile.CodeOf(err) != cufile.CUDAPointerRangeError {
		t.Errorf("register: %v", err)
	}
}
