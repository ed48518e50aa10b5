package cufile_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/rm"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/route"
)

// usable are the routes to GPU 0, and how much one read by each may be. Of bar
// one knows only by trying: memory on the Go heap cannot be mapped.
func (f *fixture) usable() map[route.ID]uint64 {
	f.t.Helper()
	h := f.open(os.O_RDWR)
	defer h.Close()
	plan, err := h.Plan(0)
	if err != nil {
		f.t.Fatal(err)
	}
	buf := f.buffer(4096)
	defer buf.Close()
	sizes := map[route.ID]uint64{}
	for _, id := range plan.Usable() {
		if err := h.Require(0, id); err != nil {
			f.t.Fatal(err)
		}
		if _, err := h.ReadAt(context.Background(), buf.Span(), 0); refused(err) {
			continue
		} else if err != nil {
			f.t.Fatal(err)
		}
		sizes[id] = uint64(len(f.data))
		if id == route.Bar {
			sizes[id] = min(sizes[id], 128<<10)
		}
	}
	return sizes
}

// by opens the file for one route.
func (f *fixture) by(id route.ID) *cufile.File {
	f.t.Helper()
	h := f.open(os.O_RDWR)
	if err := h.Require(0, id); err != nil {
		f.t.Fatal(err)
	}
	return h
}

// Memory that was freed while it was registered gives an error, whichever route
// would have moved the bytes.
func TestFreedBufferIsAnError(t *testing.T) {
	f := newFixture(t, softConfig(), 8192)
	for id := range f.usable() {
		for _, kind := range []gpu.Kind{gpu.KindDevice, gpu.KindVirtual} {
			h := f.by(id)
			a, err := f.dev.Alloc(kind, 4<<20, 0)
			if err != nil {
				t.Fatal(err)
			}
			buf, err := f.drv.RegisterBuffer(a, 4<<20)
			if err != nil {
				t.Fatal(err)
			}
			mem := buf.Span().Slice(0, 8192)
			if _, err := h.ReadAt(context.Background(), mem, 0); err != nil {
				t.Fatal(err)
			}
			if err := f.dev.Free(a); err != nil {
				t.Fatal(err)
			}
			if r, err := h.ReadAt(context.Background(), mem, 0); cufile.CodeOf(err) != cufile.CUDAPointerInvalid {
				t.Errorf("%v: a read into freed %v memory: %v, %v", id, kind, &r, err)
			}
			if err := buf.Close(); err != nil {
				t.Error(err)
			}
			h.Close()
		}
	}
	// Pinned memory has no route, but is noticed too.
	a, err := f.dev.Alloc(gpu.KindHost, 65536, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.drv.RegisterBuffer(a, 65536); err != nil {
		t.Fatal(err)
	}
	if err := f.dev.Free(a); err != nil {
		t.Fatal(err)
	}
	_, err = f.open(os.O_RDONLY).ReadAt(context.Background(), gpu.Span{Base: a, Len: 10}, 0)
	if cufile.CodeOf(err) != cufile.CUDAPointerInvalid {
		t.Errorf("a read into freed pinned memory: %v", err)
	}
}

// Memory at the address of memory that was freed while it was registered can be
// registered, and what was there before is no longer.
func TestRegisterInPlaceOfFreed(t *testing.T) {
	m := softMachine(t, softConfig())
	gpus := &numberedDriver{Driver: m.GPU}
	gpus.id.Store(1)
	f := newFixtureOn(t, dev.With(&machine.Machine{Soft: true, GPU: gpus}, dev.Of(m)), 8192)
	const n = 2 << 20
	a := f.alloc(n)
	old, err := f.drv.RegisterBuffer(a, n)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.drv.RegisterBuffer(a, n); cufile.CodeOf(err) != cufile.MemoryAlreadyRegistered {
		t.Fatalf("live memory registered twice: %v", err)
	}
	gpus.id.Store(2) // it was freed, and the address handed out again
	h := f.by(route.Ring)
	mem := old.Span().Slice(0, 8192)
	if _, err := h.ReadAt(context.Background(), mem, 0); cufile.CodeOf(err) != cufile.CUDAPointerInvalid {
		t.Fatalf("a read into freed memory: %v", err)
	}
	next, err := f.drv.RegisterBuffer(a, n)
	if err != nil {
		t.Fatal(err)
	}
	if err := old.Close(); cufile.CodeOf(err) != cufile.MemoryNotRegistered {
		t.Errorf("the registration of freed memory ends again: %v", err)
	}
	if b, err := f.drv.Buffer(a); b != next || err != nil {
		t.Errorf("found %v, %v", b, err)
	}
	if _, err := h.ReadAt(context.Background(), mem, 0); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(f.gpuBytes(mem), f.data) {
		t.Error("other bytes")
	}
	if err := next.Close(); err != nil {
		t.Error(err)
	}
}

// A registration that begins while another of the same base ends has its routes.
func TestRegisterWhileClosing(t *testing.T) {
	f := newFixture(t, softConfig(), 8192)
	h := f.by(route.Bar)
	const n = 2 << 20
	a := f.alloc(n)
	old, err := f.drv.RegisterBuffer(a, n)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.ReadAt(context.Background(), old.Span().Slice(0, 4096), 0); err != nil {
		t.Skip(err)
	}
	for i := range rounds(2000) {
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := old.Close(); err != nil {
				t.Error(err)
			}
		})
		var next *cufile.Buffer
		for {
			if next, err = f.drv.RegisterBuffer(a, n); err == nil {
				break
			}
			if cufile.CodeOf(err) != cufile.MemoryAlreadyRegistered {
				t.Fatal(err)
			}
			runtime.Gosched()
		}
		wg.Wait()
		if _, err := h.ReadAt(context.Background(), next.Span().Slice(0, 4096), 0); err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
		old = next
	}
}

// Memory that is freed during reads makes them fail from then on, and what is
// allocated next stays untouched.
func TestFreedInFlight(t *testing.T) {
	f := newFixture(t, softConfig(), 4<<20)
	rng := rand.New(rand.NewPCG(3, 4))
	for id, n := range f.usable() {
		h := f.by(id)
		for range rounds(20) {
			a := f.alloc(4 << 20)
			buf, err := f.drv.RegisterBuffer(a, 4<<20)
			if err != nil {
				t.Fatal(err)
			}
			var last error
			started := make(chan struct{})
			var wg sync.WaitGroup
			wg.Go(func() {
				first := sync.OnceFunc(func() { close(started) })
				for last == nil {
					_, last = h.ReadAt(context.Background(), buf.Span().Slice(0, n), 0)
					first()
				}
			})
			<-started
			for range rng.IntN(200) {
				runtime.Gosched()
			}
			if err := f.dev.Free(a); err != nil {
				t.Fatal(err)
			}
			next := f.alloc(4 << 20)
			if err := f.dev.Fill(next, 0x5A, 1, 4<<20); err != nil {
				t.Fatal(err)
			}
			wg.Wait()
			if cufile.CodeOf(last) != cufile.CUDAPointerInvalid {
				t.Errorf("%v: freed in flight: %v", id, last)
			}
			if got := f.gpuBytes(gpu.Span{Base: next, Len: 4 << 20}); !bytes.Equal(got, bytes.Repeat([]byte{0x5A}, 4<<20)) {
				t.Fatalf("%v: a read into freed memory went into the next allocation", id)
			}
			if err := errors.Join(buf.Close(), f.dev.Free(next)); err != nil {
				t.Fatal(err)
			}
		}
		h.Close()
	}
}

// A numbered GPU numbers allocations, as CUDA does.
type numbered struct {
	gpu.Device
	id *atomic.Uint64
}

func (n numbered) BufferID(gpu.Addr) (uint64, error) { return n.id.Load(), nil }

// IPCHandle lets the bar route map memory.
func (n numbered) IPCHandle(a gpu.Addr) ([64]byte, error) {
	return n.Device.(rm.IPCExporter).IPCHandle(a)
}

type numberedDriver struct {
	gpu.Driver
	id atomic.Uint64
}

func (d *numberedDriver) Open(i int) (gpu.Device, error) {
	dev, err := d.Driver.Open(i)
	return numbered{dev, &d.id}, err
}

// An address that was freed and has another owner now is not written to,
// although everything but the allocation's number is as it was.
func TestReusedAddressIsAnError(t *testing.T) {
	m := softMachine(t, softConfig())
	drv := &numberedDriver{Driver: m.GPU}
	f := newFixtureOn(t, dev.With(&machine.Machine{Soft: true, GPU: drv}, dev.Of(m)), 8192)
	for id := range f.usable() {
		drv.id.Store(1)
		h, buf := f.by(id), f.buffer(65536)
		mem := buf.Span().Slice(0, 8192)
		if _, err := h.ReadAt(context.Background(), mem, 0); err != nil {
			t.Fatal(err)
		}
		if err := f.dev.Fill(mem.Addr(), 0xEE, 1, 8192); err != nil {
			t.Fatal(err)
		}
		drv.id.Store(2)
		_, err := h.ReadAt(context.Background(), mem, 0)
		if cufile.CodeOf(err) != cufile.CUDAPointerInvalid || !errors.Is(err, route.ErrFreed) {
			t.Errorf("%v: %v", id, err)
		}
		// A mapping belongs to the memory that was freed.
		if id != route.Bar && id != route.P2PDMA && !bytes.Equal(f.gpuBytes(mem), bytes.Repeat([]byte{0xEE}, 8192)) {
			t.Errorf("%v: the new owner's memory was written to", id)
		}
		h.Close()
		buf.Close()
	}
}

// A buffer can be deregistered and registered again while reads use its memory:
// they go on, through the registration or without.
func TestDeregisterDuringReads(t *testing.T) {
	f := newFixture(t, softConfig(), 256<<10)
	h := f.open(os.O_RDONLY)
	a := f.alloc(1 << 20)
	var stop atomic.Bool
	var wg sync.WaitGroup
	for id := range 4 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(9, uint64(id)))
			for !stop.Load() {
				n := 1 + rng.Uint64N(60_000)
				off := rng.Int64N(int64(len(f.data)) - int64(n))
				mem := gpu.Span{Base: a, Off: uint64(id)<<18 + rng.Uint64N(100_000), Len: n}
				if _, err := h.ReadAt(context.Background(), mem, off); err != nil {
					t.Error(err)
					return
				}
				got := make([]byte, n)
				if err := f.dev.CopyOut(got, mem.Addr()); err != nil || !bytes.Equal(got, f.data[off:off+int64(n)]) {
					t.Errorf("wrong bytes, %v", err)
					return
				}
			}
		})
	}
	for range rounds(300) {
		buf, err := f.drv.RegisterBuffer(a, 1<<20)
		if err != nil {
			t.Error(err)
			break
		}
		runtime.Gosched()
		if err := buf.Close(); err != nil {
			t.Error(err)
			break
		}
	}
	stop.Store(true)
	wg.Wait()
}
