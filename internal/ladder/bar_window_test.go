package ladder

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/ring"
	"github.com/culvert-io/culvert/route"
)

// allowWindows makes the ring of a ladder use windows, or not, whatever the GPU. It reports
// whether that is possible.
func allowWindows(l *Ladder, allow bool) bool {
	for _, r := range l.routes {
		if b, ok := r.(*barRoute); ok && b.ring != nil {
			if b.ring.window = nil; allow {
				b.ring.window = b.window
			}
			return true
		}
	}
	return false
}

// A windowFixture has a registered buffer of some MiB and a warm file as long.
type windowFixture struct {
	*fixture
	plan *Plan
	data []byte
}

const windowLen = 6<<20 + 5000

func newWindowFixture(t *testing.T) *windowFixture {
	t.Helper()
	w := newFixture(t)
	a, err := w.device.Alloc(gpu.KindDevice, windowLen, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.device.Free(a) })
	w.mem = gpu.Span{Base: a, Len: windowLen}
	mem := w.mem
	w.ladder.Register(mem, gpu.KindDevice)
	t.Cleanup(func() { w.ladder.Deregister(mem) })
	data := noisy(windowLen, 31)
	w.src = FileSource(adopt(t, "window", data))
	if !allowWindows(w.ladder, true) {
		t.Skip("needs GPU memory that can be mapped")
	}
	return &windowFixture{w, w.ladder.Plan(w.src).keep(route.Bar, route.Ring), data}
}

// read reads n bytes at off to the place at of cleared memory, and returns that memory.
func (w *windowFixture) read(t *testing.T, off int64, at, n uint64) ([]byte, route.Receipt, error) {
	t.Helper()
	mem := make([]byte, w.mem.Len)
	if err := w.device.CopyIn(w.mem.Base, mem); err != nil {
		t.Fatal(err)
	}
	o, res := w.op(0), make([]route.Receipt, 1)
	o.Off, o.Mem = off, w.mem.Slice(at, n)
	err := w.plan.Run(context.Background(), []Op{o}, res)
	if cerr := w.device.CopyOut(mem, w.mem.Base); cerr != nil {
		t.Fatal(cerr)
	}
	return mem, res[0], err
}

// TestWindowReceipts checks the bytes and the receipts of reads by windows, also beyond the
// end of the file.
func TestWindowReceipts(t *testing.T) {
	w := newWindowFixture(t)
	rnd := rand.New(rand.NewPCG(31, 1))
	var windows int64
	for range 20 {
		n := crossoverHigh + 1 + rnd.Uint64N(windowLen-crossoverHigh)
		at, off := rnd.Uint64N(windowLen-n+1), rnd.Int64N(windowLen)
		want := w.data[off:min(off+int64(n), windowLen)]
		got, r, err := w.read(t, off, at, n)
		if err != nil || r.Bytes != int64(len(want)) || !bytes.Equal(got[at:at+uint64(len(want))], want) {
			t.Fatalf("%d bytes at %d: %v, %v", n, off, &r, err)
		}
		if r.By[route.Bar]+r.By[route.Ring] != r.Bytes || r.Host.Bytes != r.By[route.Ring] || r.Route != r.By.Most() {
			t.Errorf("%d bytes at %d: %v", n, off, &r)
		}
		if used := r.By[route.Bar] > 0; used == (r.Declined[route.Bar] != nil) {
			t.Errorf("%d bytes at %d: BAR1 moved %d, declined for %v", n, off, r.By[route.Bar], r.Declined[route.Bar])
		}
		windows += r.By[route.Bar]
	}
	if windows == 0 {
		t.Error("no byte went through a window")
	}
}

// TestCountWindow is the table of receipts: the parts make up what is in place.
func TestCountWindow(t *testing.T) {
	used := decline(route.Bar, "", "", "")
	for _, c := range []struct {
		n, window, bar, ring int64
	}{{100, 0, 0, 0}, {100, 100, 100, 0}, {100, 30, 30, 70}, {100, 170, 100, 0}, {0, 170, 0, 0}} {
		r := route.Receipt{Bytes: c.n, Declined: route.Declined{route.Bar: used}}
		countWindow(&ring.Result{N: c.n, WindowBytes: c.window}, &r)
		if r.By != (route.ByRoute{route.Bar: c.bar, route.Ring: c.ring}) || (r.Declined[route.Bar] == nil) != (c.window > 0) {
			t.Errorf("%d of %d bytes by windows: %v", c.window, c.n, &r)
		}
	}
}

// TestNoWindows checks which reads do not use windows although their memory has a mapping.
func TestNoWindows(t *testing.T) {
	w := newWindowFixture(t)
	required := func(p *Plan, err error) *Plan {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	all := w.ladder.Plan(w.src)
	for name, c := range map[string]struct {
		plan   *Plan
		n      uint64
		buf    Registration
		stream bool
		used   bool
	}{
		"usual":             {w.plan, 2 << 20, always{}, false, true},
		"larger than 1 MiB": {w.plan, crossoverHigh + 1, always{}, false, true},
		"1 MiB":             {w.plan, crossoverHigh, always{}, false, false},
		"not registered":    {w.plan, 2 << 20, nil, false, false},
		"a stream waits":    {w.plan, 2 << 20, always{}, true, false},
		"ring required":     {required(w.plan.Only(route.Ring)), 2 << 20, always{}, false, false},
		"ring or better":    {required(w.plan.AtLeast(route.Ring)), 2 << 20, always{}, false, false},
		"staged routes":     {all.Staged("a test", ""), 2 << 20, always{}, false, false},
		"without bar":       {all.keep(route.Ring), 2 << 20, always{}, false, false},
	} {
		o, res := w.op(c.n), make([]route.Receipt, 1)
		o.Buf, o.InStream = c.buf, c.stream
		// By the ring, whatever BAR1 alone would accept.
		p := *c.plan
		p.traits = append([]Traits(nil), p.traits...)
		for i := range p.traits {
			if p.traits[i].ID == route.Bar {
				p.traits[i].Max = 4096
			}
		}
		if err := p.Run(context.Background(), []Op{o}, res); err != nil || res[0].Bytes != int64(c.n) || (res[0].By[route.Bar] > 0) != c.used {
			t.Errorf("%s: %v, %v", name, &res[0], err)
		}
	}
}

// TestWindowsOfGPUs checks that only known GPUs use windows, and none where BAR1 is switched
// off: the software GPU has another name than the one that it is like.
func TestWindowsOfGPUs(t *testing.T) {
	for name, c := range map[string]struct {
		gpu  string
		off  string
		used bool
	}{
		"known":       {"NVIDIA H200", "", true},
		"software":    {"NVIDIA H200 (software)", "", false},
		"other":       {"NVIDIA L4", "", false},
		"without bar": {"NVIDIA H200", "-bar", false},
	} {
		t.Setenv(RoutesSwitch, c.off)
		device, m := softDevice(t)
		l := Open(namedGPU{device, c.gpu}, dev.Of(m), nil, Settings{})
		defer l.Close()
		for _, r := range l.routes {
			if r, ok := r.(*ringRoute); ok && (r.window != nil) != c.used {
				t.Errorf("%s: %v", name, r.window != nil)
			}
		}
	}
}

// A namedGPU says that it is another one.
type namedGPU struct {
	gpu.Device
	name string
}

func (g namedGPU) Info() gpu.Info {
	i := g.Device.Info()
	i.Name = g.name
	return i
}

// TestWindowFreed checks that memory which was freed meanwhile is not reported as filled.
func TestWindowFreed(t *testing.T) {
	w := newWindowFixture(t)
	o, res := w.op(2<<20), make([]route.Receipt, 1)
	o.Buf = freedBuffer{}
	if err := w.plan.Run(context.Background(), []Op{o}, res); !errors.Is(err, route.ErrFreed) || res[0].Bytes != 0 {
		t.Errorf("%v, %v", &res[0], err)
	}
}

// TestWindowsTogether has callers with and without windows read into one buffer.
func TestWindowsTogether(t *testing.T) {
	w := newWindowFixture(t)
	const callers, n = 4, 1<<20 + 300_000
	readTogether(t, w.plan, callers, 10, func(i uint64) Op {
		o := w.op(0)
		o.Mem, o.Off = w.mem.Slice(i*n, n), int64(i*n)
		if i%2 == 1 {
			o.Buf = nil
		}
		return o
	})
	got := make([]byte, callers*n)
	if err := w.device.CopyOut(got, w.mem.Base); err != nil || !bytes.Equal(got, w.data[:callers*n]) {
		t.Errorf("wrong bytes, %v", err)
	}
}
