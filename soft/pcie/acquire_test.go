package pcie

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/soft/pcie/syncpoint"
)

func TestWritesAndReadsReachMemory(t *testing.T) {
	for _, mode := range []IOMMU{Off} {
		m := newMachine(t, Config{IOMMU: mode}, ForwardAll)
		h, mem := host(t, m.Fabric, 10000)
		b, dev := bar(t, m.b, 64<<10)
		e := Engine{Port: m.a}
		sg := []Range{{h.Base() + 100, 50}, {b.Base() + 4096, 30}, {h.Base() + 150, 20}}
		data := pattern(100, 77)
		if n, err := e.Write(sg, data); n != 100 || err != nil {
			t.Fatalf("%v: wrote %d bytes, %v", mode, n, err)
		}
		want := append(append([]byte{}, data[:50]...), data[80:]...)
		if !bytes.Equal(mem[100:170], want) || !bytes.Equal(dev[4096:4126], data[50:80]) {
			t.Errorf("%v: the bytes are not where the list says", mode)
		}
		back := make([]byte, 100)
		if n, err := e.Read(sg, back); n != 100 || err != nil || !bytes.Equal(back, data) {
			t.Errorf("%v: read %d bytes, %v, equal %v", mode, n, err, bytes.Equal(back, data))
		}
	}
}

func TestNeighboursAreJoined(t *testing.T) {
	m := newMachine(t, Config{}, ForwardAll)
	h, mem := host(t, m.Fabric, 4*pageSize)
	var sg []Range
	for i := range 4 {
		sg = append(sg, Range{h.Base() + uint64(i*pageSize), pageSize})
	}
	l, err := m.a.AcquireAll(sg, Read)
	if err != nil {
		t.Fatal(err)
	}
	if segs := l.Segs(); len(segs) != 1 || &segs[0][0] != &mem[0] || l.Len() != 4*pageSize {
		t.Errorf("%d segments of %d bytes, want the one buffer itself", len(segs), l.Len())
	}
	if err := l.Release(l.Len()); err != nil {
		t.Error(err)
	}
}

func TestRefusals(t *testing.T) {
	m := newMachine(t, Config{}, ForwardNone)
	h, mem := host(t, m.Fabric, pageSize)
	b, dev := bar(t, m.b, pageSize)
	far, _ := bar(t, m.d, pageSize)
	gone, _ := bar(t, m.c, pageSize)
	m.c.Unplug()
	before := pattern(pageSize, 2)
	for _, tc := range []struct {
		name string
		from *Function
		sg   []Range
		want error
	}{
		{"nothing", m.a, nil, ErrMalformed},
		{"no bytes", m.a, []Range{{h.Base(), 0}}, ErrMalformed},
		{"negative", m.a, []Range{{h.Base(), -1}}, ErrMalformed},
		{"wraps", m.a, []Range{{^uint64(0), 2}}, ErrMalformed},
		{"too much in all", m.a, []Range{{0, math.MaxInt}, {math.MaxInt, math.MaxInt}}, ErrMalformed},
		{"before memory", m.a, []Range{{h.Base()&^(pageSize-1) - 1, 1}}, ErrNoTarget},
		{"past the end", m.a, []Range{{h.Base() + pageSize - 1, 2}}, ErrNoTarget},
		{"past the window", m.a, []Range{{b.Base() + pageSize - 1, 2}}, ErrNoTarget},
		{"second is bad", m.a, []Range{{h.Base(), 8}, {1, 8}}, ErrNoTarget},
		{"not forwarded", m.a, []Range{{far.Base(), 8}}, ErrNoRoute},
		{"from an unplugged device", m.c, []Range{{h.Base(), 8}}, ErrRemoved},
		{"to its window, not forwarded", m.a, []Range{{gone.Base(), 8}}, ErrNoRoute},
	} {
		faults := tc.from.Faults()
		e := Engine{Port: tc.from}
		n, err := e.Write(tc.sg, bytes.Repeat([]byte{0xff}, 64))
		if n != 0 || !errors.Is(err, tc.want) {
			t.Errorf("%s: %d bytes, %v; want %v", tc.name, n, err, tc.want)
			continue
		}
		if pe, ok := errors.AsType[*Error](err); !ok || pe.Device != tc.from.Name() || !strings.Contains(err.Error(), "bus address") {
			t.Errorf("%s: %v does not say who and where", tc.name, err)
		}
		if tc.from.Faults() != faults+1 {
			t.Errorf("%s: the fault was not counted", tc.name)
		}
	}
	if !bytes.Equal(mem, before) || !bytes.Equal(dev, pattern(pageSize, 1)) {
		t.Error("a refused request changed memory")
	}
	if u := m.Usage(); u.Accesses != 0 {
		t.Errorf("%d accesses are left", u.Accesses)
	}
}

func TestUnplug(t *testing.T) {
	m := newMachine(t, Config{}, ForwardAll)
	b, _ := bar(t, m.b, pageSize)
	h, _ := host(t, m.Fabric, pageSize)
	toBar, err := m.a.Acquire(b.Base(), 8, Write)
	if err != nil {
		t.Fatal(err)
	}
	own, err := m.b.Acquire(h.Base(), 8, Write)
	if err != nil {
		t.Fatal(err)
	}
	m.b.Unplug()
	if _, err := m.a.Acquire(b.Base(), 8, Write); !errors.Is(err, ErrRemoved) {
		t.Errorf("to the unplugged device: %v", err)
	}
	if _, err := m.b.Acquire(h.Base(), 8, Write); !errors.Is(err, ErrRemoved) {
		t.Errorf("from the unplugged device: %v", err)
	}
	for _, l := range []Access{toBar, own} {
		if err := l.Release(8); !errors.Is(err, ErrRemoved) {
			t.Errorf("a access that was out: %v", err)
		}
	}
}

func TestPoison(t *testing.T) {
	m := newMachine(t, Config{}, ForwardAll)
	h, _ := host(t, m.Fabric, pageSize)
	heal := m.Poison(h.Base()+100, 10)
	other := m.Poison(h.Base()+200, 1)
	for _, tc := range []struct {
		off, n int
		bad    bool
	}{{0, 100, false}, {0, 101, true}, {109, 1, true}, {110, 90, false}, {190, 20, true}} {
		l, err := m.a.Acquire(h.Base()+uint64(tc.off), tc.n, Read)
		if errors.Is(err, ErrAborted) != tc.bad || (err == nil) == tc.bad {
			t.Errorf("[%d:+%d]: %v", tc.off, tc.n, err)
		}
		if err == nil {
			_ = l.Release(0)
		}
	}
	heal()
	other()
	heal()
	l, err := m.a.Acquire(h.Base(), pageSize, Read)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Release(0); err != nil {
		t.Error(err)
	}
}

func TestRelease(t *testing.T) {
	m := newMachine(t, Config{}, ForwardAll)
	h, _ := host(t, m.Fabric, pageSize)
	for _, moved := range []int{-1, 9} {
		l, err := m.a.Acquire(h.Base(), 8, Read)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Release(moved); !errors.Is(err, ErrMalformed) {
			t.Errorf("Release(%d) of 8: %v", moved, err)
		}
	}
	l, err := m.a.Acquire(h.Base(), 8, Read)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Release(3); err != nil {
		t.Error(err)
	}
	next, err := m.a.Acquire(h.Base(), 16, Read) // the same state again
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Release(3); !errors.Is(err, ErrReleased) {
		t.Errorf("second Release: %v", err)
	}
	if l.Segs() != nil || l.Len() != 0 {
		t.Error("a returned access still shows memory")
	}
	if next.Len() != 16 || m.Usage().Accesses != 1 {
		t.Error("a stale access ended a live one")
	}
	if err := next.Release(16); err != nil {
		t.Error(err)
	}
	if err := (Access{}).Release(0); !errors.Is(err, ErrReleased) {
		t.Errorf("the zero Access: %v", err)
	}
}

// A removal waits for accesses in flight, and meanwhile none begins.
func TestRemoveWaitsForAccesses(t *testing.T) {
	var points syncpoint.Points
	m := newMachine(t, Config{Points: &points}, ForwardAll)
	h, mem := host(t, m.Fabric, pageSize)
	b, dev := bar(t, m.b, pageSize)
	for _, tc := range []struct {
		bus    uint64
		mem    []byte
		remove func()
	}{{h.Base(), mem, h.Remove}, {b.Base(), dev, b.Remove}} {
		l, err := m.a.Acquire(tc.bus, 8, Write)
		if err != nil {
			t.Fatal(err)
		}
		removed := make(chan struct{})
		go func() {
			tc.remove()
			close(removed)
		}()
		for { // until the removal has begun
			x, err := m.a.Acquire(tc.bus, 8, Write)
			if errors.Is(err, ErrNoTarget) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			_ = x.Release(0)
		}
		select {
		case <-removed:
			t.Fatal("removed under a access")
		default:
		}
		copy(l.Segs()[0], "in time!")
		if err := l.Release(8); err != nil {
			t.Error(err)
		}
		<-removed
		if string(tc.mem[:8]) != "in time!" {
			t.Errorf("memory holds %q", tc.mem[:8])
		}
		tc.remove() // again: nothing
	}
	if u := m.Usage(); u != (Usage{}) {
		t.Errorf("left over: %+v", u)
	}
}

func TestHoldPoints(t *testing.T) {
	var points syncpoint.Points
	m := newMachine(t, Config{Points: &points}, ForwardAll)
	h, _ := host(t, m.Fabric, pageSize)
	for _, name := range []string{"pcie.acquired", "pcie.release", "engine.acquired", "engine.moved"} {
		gate := points.Stop(name)
		done := make(chan error)
		go func() {
			e := Engine{Port: m.a, Points: &points, ID: 7}
			_, err := e.Write([]Range{{h.Base(), 8}}, make([]byte, 8))
			done <- err
		}()
		<-gate.Arrived()
		if u := m.Usage(); u.Accesses != 1 {
			t.Errorf("at %s %d accesses are out", name, u.Accesses)
		}
		gate.Open()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestTraffic(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(m *machine, h *Window, b *Window) error
		want string
	}{
		{
			"write to host", func(m *machine, h *Window, _ *Window) error { return dma(m.a, Write, h.Base(), 100) },
			"0000:01:00.0 100 up 0 down; 0000:03:00.0 100 up 0 down; host 0 read 100 written",
		},
		{
			"read from host", func(m *machine, h *Window, _ *Window) error { return dma(m.c, Read, h.Base(), 100) },
			"0000:05:00.0 0 up 100 down; host 100 read 0 written",
		},
		{
			"write to a peer below the switch", func(m *machine, _ *Window, b *Window) error { return dma(m.a, Write, b.Base(), 100) },
			"0000:03:00.0 100 up 0 down; 0000:04:00.0 0 up 100 down; host 0 read 0 written",
		},
		{"the same, redirected", func(m *machine, _ *Window, b *Window) error {
			m.left.SetACS(true)
			return dma(m.a, Write, b.Base(), 100)
		}, "0000:01:00.0 100 up 100 down; 0000:03:00.0 100 up 0 down; 0000:04:00.0 0 up 100 down; host 0 read 0 written"},
		{
			"read from a peer through the root", func(m *machine, _ *Window, b *Window) error { return dma(m.d, Read, b.Base(), 100) },
			"0000:01:00.0 100 up 0 down; 0000:04:00.0 100 up 0 down; 0000:81:00.0 0 up 100 down; host 0 read 0 written",
		},
		{"a short transfer", func(m *machine, h *Window, _ *Window) error {
			l, err := m.c.Acquire(h.Base(), 100, Write)
			if err != nil {
				return err
			}
			return l.Release(30)
		}, "0000:05:00.0 30 up 0 down; host 0 read 30 written"},
		{"a list that ends in the second part", func(m *machine, h *Window, b *Window) error {
			l, err := m.b.AcquireAll([]Range{{h.Base(), 10}, {b.Base(), 10}}, Write)
			if err != nil {
				return err
			}
			return l.Release(12)
		}, "0000:01:00.0 10 up 0 down; 0000:04:00.0 12 up 2 down; host 0 read 10 written"},
	} {
		m := newMachine(t, Config{}, ForwardAll)
		h, _ := host(t, m.Fabric, pageSize)
		b, _ := bar(t, m.b, pageSize)
		if err := tc.do(m, h, b); err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
		if got := m.traffic(); got != tc.want {
			t.Errorf("%s:\n got %s\nwant %s", tc.name, got, tc.want)
		}
	}
}

func dma(fn *Function, d Dir, bus uint64, n int) error {
	l, err := fn.Acquire(bus, n, d)
	if err != nil {
		return err
	}
	return l.Release(n)
}

func TestAcquireAllocatesNothing(t *testing.T) {
	m := newMachine(t, Config{IOMMU: Translating}, ForwardAll)
	h, _ := host(t, m.Fabric, 1<<20)
	var pages []uint64
	for p := h.Base() &^ (pageSize - 1); p < h.Base()+1<<20; p += pageSize {
		pages = append(pages, p)
	}
	mp, err := m.a.Map(pages, pageSize)
	if err != nil {
		t.Fatal(err)
	}
	defer mp.Unmap()
	bus := mp.Addrs()[0] + h.Base()%pageSize
	avg := testing.AllocsPerRun(100, func() {
		if err := dma(m.a, Write, bus, 1<<20); err != nil {
			t.Fatal(err)
		}
	})
	if avg != 0 {
		t.Errorf("a DMA allocates %v times", avg)
	}
}

func TestBadWindows(t *testing.T) {
	m := newMachine(t, Config{}, ForwardAll)
	for _, n := range []uint64{0, 1, pageSize - 1, 3 * pageSize, 1 << 47} {
		if _, err := m.a.AddBAR(n, Memory(nil)); err == nil {
			t.Errorf("a BAR of %d bytes was accepted", n)
		}
	}
	if _, err := m.AddHost(nil); err == nil {
		t.Error("0 bytes of host memory were accepted")
	}
	if _, err := m.left.AddSwitch("0000:03:00.0"); err == nil {
		t.Error("a name was given twice")
	}
	if _, err := m.left.AddSwitch("x"); err == nil {
		t.Error("a switch fits into a taken slot")
	}
	if _, err := m.left.AddFunction(""); err == nil {
		t.Error("a device without a name")
	}
	up := m.sw.slot
	if _, err := up.AddFunction("y"); err == nil {
		t.Error("a device fits into the slot of a switch")
	}
	if u := m.Usage(); u != (Usage{}) {
		t.Errorf("left over: %+v", u)
	}
}

// A target may refuse. Its hold is released all the same.
type fickle struct{ released int }

func (f *fickle) Release() { f.released++ }
func (f *fickle) Acquire(segs [][]byte, _ uint64, _ int, _ Dir) ([][]byte, Releaser, error) {
	return segs, f, unix.EIO
}

func TestTargetRefuses(t *testing.T) {
	m := newMachine(t, Config{}, ForwardAll)
	f := &fickle{}
	b, err := m.b.AddBAR(pageSize, f)
	if err != nil {
		t.Fatal(err)
	}
	_, err = m.a.Acquire(b.Base(), 8, Read)
	if !errors.Is(err, ErrAborted) || !errors.Is(err, unix.EIO) || f.released != 1 {
		t.Errorf("%v, released %d times", err, f.released)
	}
}

func BenchmarkAcquire(b *testing.B) {
	for name, mode := range map[string]IOMMU{"off": Off, "translating": Translating} {
		b.Run(name, func(b *testing.B) {
			m := newMachine(b, Config{IOMMU: mode}, ForwardAll)
			win, _ := bar(b, m.b, 1<<20)
			mp, err := m.c.Map([]uint64{win.Base()}, 1<<20)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if err := dma(m.c, Write, mp.Addrs()[0], 1<<20); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
