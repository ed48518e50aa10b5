package ladder

import (
	"bytes"
	"context"
	"errors"
	"os"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/route"
)

// TestShares is the table of shared reads: the shape of a request and the number of other
// reads in flight.
func TestShares(t *testing.T) {
	tr := barTraits
	tr.Share = Share{From: 1 << 20, Least: 5, Most: 9}
	read := Shape{Len: 1 << 20, OnDevice: true, Registered: true}
	with := func(change func(*Shape)) Shape { s := read; change(&s); return s }
	for name, c := range map[string]struct {
		op    Shape
		loads [2]int32 // the first and the last of others in flight; -1 for none
	}{
		"usual":       {read, [2]int32{4, 8}},
		"larger":      {with(func(s *Shape) { s.Len++ }), [2]int32{4, 8}},
		"smaller":     {with(func(s *Shape) { s.Len-- }), [2]int32{-1, -1}},
		"in a batch":  {with(func(s *Shape) { s.Batch = 2 << 20 }), [2]int32{-1, -1}},
		"in a stream": {with(func(s *Shape) { s.InStream = true }), [2]int32{-1, -1}},
		"required":    {with(func(s *Shape) { s.Strict = true }), [2]int32{-1, -1}},
	} {
		for load := range int32(20) {
			want := c.loads[0] >= 0 && load >= c.loads[0] && load <= c.loads[1]
			if got := tr.shares(&c.op, State{Prepared: true, Load: load}); got != want {
				t.Errorf("%s, %d others: %v, want %v", name, load, got, want)
			}
		}
	}
	if barTraits.shares(&read, State{Prepared: true}) {
		t.Error("shared without a border")
	}
}

// A sharedFixture has a plan that shares every read of 64 KiB and more.
type sharedFixture struct {
	*fixture
	plan *Plan
	bar  *barRoute
	data []byte
}

func newSharedFixture(t *testing.T) *sharedFixture {
	t.Helper()
	w := newFixture(t)
	data := noisy(1<<20+5000, 21)
	w.src = FileSource(adopt(t, "shared", data))
	p := sharing(w.ladder, w.src, Share{From: barLimit.From, Most: 100})
	if p.Best() != route.Bar {
		t.Skip("needs GPU memory that can be mapped")
	}
	p.traits[0].Max = 1 << 20
	return &sharedFixture{w, p, p.routes[0].(*barRoute), data}
}

// read reads n bytes at off into cleared memory, and returns that memory.
func (w *sharedFixture) read(t *testing.T, ctx context.Context, src Source, off int64, n uint64) ([]byte, route.Receipt, error) {
	t.Helper()
	mem := make([]byte, w.mem.Len)
	if err := w.device.CopyIn(w.mem.Base, mem); err != nil {
		t.Fatal(err)
	}
	o, res := w.op(n), make([]route.Receipt, 1)
	o.Src, o.Off = src, off
	err := w.plan.Run(ctx, []Op{o}, res)
	if cerr := w.device.CopyOut(mem, w.mem.Base); cerr != nil {
		t.Fatal(cerr)
	}
	if w.bar.inFlight.Load() != 0 {
		t.Errorf("%d reads are in flight afterwards", w.bar.inFlight.Load())
	}
	return mem, res[0], err
}

// TestSharedRead checks the bytes and the receipts of shared reads, also where the file
// ends in either half.
func TestSharedRead(t *testing.T) {
	w := newSharedFixture(t)
	size := int64(len(w.data))
	for _, n := range []uint64{barLimit.From, barLimit.From + 1, 100_001, 1 << 20} {
		half := int64(sharedHalf(n))
		for _, off := range []int64{0, 1, 4999, size - half/2, size - half, size - half - 1000, size, size + 1} {
			want := w.data[min(off, size):min(off+int64(n), size)]
			got, r, err := w.read(t, context.Background(), w.src, off, n)
			if err != nil || r.Bytes != int64(len(want)) || !bytes.Equal(got[:len(want)], want) || !bytes.Equal(got[len(want):], make([]byte, len(got)-len(want))) {
				t.Errorf("%d bytes at %d: %v, %v", n, off, &r, err)
			}
			staged := min(half, r.Bytes)
			if r.By[route.Ring] != staged || r.By[route.Bar] != r.Bytes-staged || r.Host.Bytes != staged || r.Cache.Unasked != r.Bytes {
				t.Errorf("%d bytes at %d: ring %d, bar %d, host %d, %+v; want %d of %d staged", n, off, r.By[route.Ring], r.By[route.Bar], r.Host.Bytes, r.Cache, staged, r.Bytes)
			}
		}
	}
}

// TestSharedReadFails checks that a read that fails in either half ends where the bytes
// before are in place.
func TestSharedReadFails(t *testing.T) {
	w := newSharedFixture(t)
	// This process's memory is a file that can be read where there is memory: here, up to
	// the end of another file, which is mapped beyond its end.
	const hole = 2 << 20
	backing := adopt(t, "backing", noisy(hole, 22))
	mem, err := unix.Mmap(backing.FD(), 0, hole+1<<20, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	f, err := os.Open("/proc/self/mem")
	if err != nil {
		t.Skip(err)
	}
	defer f.Close()
	base := int64(gpu.HostAddr(mem))
	src := FileSource(adoptFD(t, int(f.Fd())))
	for name, before := range map[string]int64{"first half": 100_000, "second half": 700_000} {
		got, r, err := w.read(t, context.Background(), src, base+hole-before, 1<<20)
		if !errors.Is(err, unix.EIO) || r.Bytes > before || r.Bytes < before-4096 || !bytes.Equal(got[:r.Bytes], mem[hole-before:][:r.Bytes]) {
			t.Errorf("%s: %v, %v; want at most %d bytes", name, &r, err, before)
		}
	}
}

// A failingGPU does not finish its copies.
type failingGPU struct{ gpu.Device }

type failingStream struct{ gpu.Stream }

func (g failingGPU) NewStream() (gpu.Stream, error) {
	s, err := g.Device.NewStream()
	return failingStream{s}, err
}

func (s failingStream) Synchronize() error {
	return errors.Join(gpu.ErrIllegalAddress, s.Stream.Synchronize())
}

// TestSharedReadWithoutCopies checks that nothing counts behind a first half that did not
// arrive, and that BAR1 moves all where no memory can be pinned.
func TestSharedReadWithoutCopies(t *testing.T) {
	w := newSharedFixture(t)
	ring := w.bar.ring
	defer func() { w.bar.ring = ring }()
	w.bar.ring = newRing(failingGPU{w.device}, nil, Settings{})
	defer w.bar.ring.Close()
	if _, r, err := w.read(t, context.Background(), w.src, 0, 1<<20); !errors.Is(err, gpu.ErrIllegalAddress) || r.Bytes != 0 || r.Host.Bytes != 0 || r.By != (route.ByRoute{}) {
		t.Errorf("a copy that fails: %v, %v", &r, err)
	}
	w.bar.ring = newRing(w.device, nil, Settings{Budget: 1 << 20})
	defer w.bar.ring.Close()
	got, r, err := w.read(t, context.Background(), w.src, 0, 1<<20)
	if err != nil || r.By[route.Bar] != 1<<20 || r.Host.Bytes != 0 || !bytes.Equal(got, w.data[:1<<20]) {
		t.Errorf("no memory for slots: %v, %v", &r, err)
	}
}

// An endingContext is cancelled after it was asked a number of times.
type endingContext struct {
	context.Context
	left atomic.Int32
}

func (c *endingContext) Err() error {
	if c.left.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

// TestSharedReadCancelled checks that a read that is cancelled between its halves has the
// first one in place.
func TestSharedReadCancelled(t *testing.T) {
	w := newSharedFixture(t)
	ctx := &endingContext{Context: context.Background()}
	ctx.left.Store(1)
	got, r, err := w.read(t, ctx, w.src, 0, 1<<20)
	if !errors.Is(err, context.Canceled) || r.Bytes != 512<<10 || !bytes.Equal(got[:r.Bytes], w.data[:r.Bytes]) {
		t.Errorf("%v, %v", &r, err)
	}
}

// TestSharedReadIsChecked checks that memory which was freed is not written to by address,
// that other requests are not shared, and that none is where the ring is switched off.
func TestSharedReadIsChecked(t *testing.T) {
	w := newSharedFixture(t)
	o, res := w.op(1<<20), make([]route.Receipt, 1)
	o.Buf = freedBuffer{}
	if err := w.plan.Run(context.Background(), []Op{o}, res); !errors.Is(err, route.ErrFreed) || res[0].Bytes != 0 {
		t.Errorf("freed memory: %v, %v", &res[0], err)
	}
	only, err := w.plan.Only(route.Bar)
	if err != nil {
		t.Fatal(err)
	}
	if r := w.run(t, only, 1<<20); r.By[route.Bar] != r.Bytes {
		t.Errorf("BAR1 required: %v", &r)
	}
	w.bar.ring.calls.Store(200)
	if r := w.run(t, w.plan, 1<<20); r.By[route.Bar] != r.Bytes {
		t.Errorf("many reads by the ring: %v", &r)
	}
	w.bar.ring.calls.Store(0)
}

// TestNoSharedReads checks that BAR1 shares nothing where the ring is switched off.
func TestNoSharedReads(t *testing.T) {
	t.Setenv(RoutesSwitch, "-ring")
	w := newFixture(t)
	bar := w.ladder.Plan(w.src).keep(route.Bar)
	if len(bar.routes) == 0 {
		t.Skip("needs GPU memory that can be mapped")
	}
	if b := bar.routes[0].(*barRoute); b.ring != nil || b.share != (Share{}) {
		t.Errorf("shares %+v", b.share)
	}
}

// TestSharedReadsTogether has several callers read at the same time, with a border that
// makes some of the reads shared ones.
func TestSharedReadsTogether(t *testing.T) {
	w := newSharedFixture(t)
	w.plan.traits[0].Share = Share{From: barLimit.From, Least: 3, Most: 5}
	const callers, n = 8, 96 << 10
	readTogether(t, w.plan, callers, 20, func(i uint64) Op {
		o := w.op(0)
		o.Mem, o.Off = w.mem.Slice(i*n, n), int64(i*n)
		return o
	})
	got := make([]byte, callers*n)
	if err := w.device.CopyOut(got, w.mem.Base); err != nil || !bytes.Equal(got, w.data[:callers*n]) {
		t.Errorf("wrong bytes, %v", err)
	}
	if w.bar.inFlight.Load() != 0 || w.bar.ring.calls.Load() != 0 {
		t.Errorf("%d and %d reads are in flight afterwards", w.bar.inFlight.Load(), w.bar.ring.calls.Load())
	}
}
