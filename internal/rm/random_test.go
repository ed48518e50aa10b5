package rm_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/rm"
	"github.com/culvert-io/culvert/soft/kernel/nvrm"
)

// A model is what the memory should hold, beside what it does hold.
type model struct {
	m       *machine
	d       nvrm.Device
	mapper  *rm.Mapper
	allocs  []*allocation
	windows []*openWindow
}

type allocation struct {
	addr  gpu.Addr
	bytes []byte
}

// openWindow shows a part of an allocation, which may have been freed.
type openWindow struct {
	w     *rm.Mapping
	of    *allocation
	off   int
	freed bool
}

func (x *model) alloc(t *rapid.T) {
	kind := rapid.SampledFrom([]gpu.Kind{gpu.KindVirtual, gpu.KindDevice}).Draw(t, "kind")
	n := rapid.IntRange(1, 200<<10).Draw(t, "size")
	a, err := x.d.Alloc(kind, uint64(n), 0)
	if err != nil {
		t.Skip("memory is full")
	}
	b := pattern(n, rapid.Uint64().Draw(t, "seed"))
	if err := x.d.CopyIn(a, b); err != nil {
		t.Fatal(err)
	}
	x.allocs = append(x.allocs, &allocation{a, b})
}

func pick[T any](t *rapid.T, list []T) int {
	if len(list) == 0 {
		t.Skip("there is none")
	}
	return rapid.IntRange(0, len(list)-1).Draw(t, "which")
}

func (x *model) free(t *rapid.T) {
	i := pick(t, x.allocs)
	if err := x.d.Free(x.allocs[i].addr); err != nil {
		t.Fatal(err)
	}
	for _, w := range x.windows {
		w.freed = w.freed || w.of == x.allocs[i]
	}
	x.allocs = append(x.allocs[:i], x.allocs[i+1:]...)
}

func part(t *rapid.T, n int) (off, size int) {
	off = rapid.IntRange(0, n-1).Draw(t, "offset")
	return off, rapid.IntRange(1, n-off).Draw(t, "length")
}

func (x *model) open(t *rapid.T) {
	a := x.allocs[pick(t, x.allocs)]
	off, n := part(t, len(a.bytes))
	w, err := x.mapper.Map(a.addr+gpu.Addr(off), uint64(n))
	if err != nil {
		t.Fatal(err)
	}
	x.windows = append(x.windows, &openWindow{w: w, of: a, off: off})
}

func (x *model) store(t *rapid.T) {
	w := x.windows[pick(t, x.windows)]
	off, n := part(t, w.w.Len())
	b := pattern(n, rapid.Uint64().Draw(t, "seed"))
	if err := storeTo(w.w, uint64(off), b); err != nil {
		t.Fatal(err)
	}
	copy(w.of.bytes[w.off+off:], b)
}

func (x *model) load(t *rapid.T) {
	w := x.windows[pick(t, x.windows)]
	off, n := part(t, w.w.Len())
	b := make([]byte, n)
	if err := loadFrom(w.w, b, uint64(off)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b, w.of.bytes[w.off+off:][:n]) {
		t.Fatalf("a window (freed: %v) does not show what was stored", w.freed)
	}
}

func (x *model) close(t *rapid.T) {
	i := pick(t, x.windows)
	if err := x.windows[i].w.Close(); err != nil {
		t.Fatal(err)
	}
	x.windows = append(x.windows[:i], x.windows[i+1:]...)
}

// restart closes the mapper, whatever is open, and makes another.
func (x *model) restart(t *rapid.T) {
	if err := x.mapper.Close(); err != nil {
		t.Fatal(err)
	}
	x.mapper = rm.NewMapper(dev.Of(x.m.os), x.d, rm.NoBudget)
}

func (x *model) check(t *rapid.T) {
	for _, a := range x.allocs {
		got := make([]byte, len(a.bytes))
		if err := x.d.CopyOut(got, a.addr); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, a.bytes) {
			t.Fatalf("the allocation at %v has changed", a.addr)
		}
	}
}

func (x *model) end(t *rapid.T) {
	for _, w := range x.windows {
		if err := w.w.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, a := range x.allocs {
		if err := x.d.Free(a.addr); err != nil {
			t.Error(err)
		}
	}
	if err := x.mapper.Close(); err != nil {
		t.Error(err)
	}
}

// TestRandom: whatever is mapped, stored, freed and closed in whatever order, a
// byte changes only where it was stored.
func TestRandom(t *testing.T) {
	m := newMachine(t, config{})
	d := m.device(t, 0)
	before, _, err := d.MemInfo()
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		x := &model{m: m, d: d, mapper: rm.NewMapper(dev.Of(m.os), d, rm.NoBudget)}
		defer x.end(t)
		t.Repeat(map[string]func(*rapid.T){
			"alloc": x.alloc, "free": x.free, "open": x.open, "store": x.store, "load": x.load,
			"close": x.close, "restart": x.restart, "": x.check,
		})
	})
	if after, _, err := d.MemInfo(); err != nil || after != before {
		t.Errorf("%d bytes of GPU memory were free before, %d are now, %v", before, after, err)
	}
	m.idle(t)
}

// TestRounds looks for leaks: 100 000 windows, and nothing is left of them.
func TestRounds(t *testing.T) {
	rounds := 100_000
	if testing.Short() {
		rounds = 5_000
	}
	m := newMachine(t, config{})
	d := m.device(t, 0)
	mapper := m.mapper(t, d)
	addrs := []gpu.Addr{alloc(t, d, gpu.KindVirtual, 1<<20), alloc(t, d, gpu.KindDevice, 1<<20)}
	if err := mapper.Probe(); err != nil {
		t.Fatal(err)
	}
	free, _, err := d.MemInfo()
	if err != nil {
		t.Fatal(err)
	}
	objects, files, fds := m.rm.Objects(), m.os.OpenFiles(), descriptors(t)
	r := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, 64)
	for i := range rounds {
		off := uint64(r.IntN(1<<20 - 5000))
		w, err := mapper.Map(addrs[i%2]+gpu.Addr(off), 1+uint64(r.IntN(4999)))
		if err != nil {
			t.Fatal(err)
		}
		if err := storeTo(w, 0, b[:min(len(b), w.Len())]); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if after, _, err := d.MemInfo(); err != nil || after != free {
		t.Errorf("%d bytes of GPU memory were free before, %d are now, %v", free, after, err)
	}
	if o, f, n := m.rm.Objects(), m.os.OpenFiles(), descriptors(t); o != objects || f != files || n != fds {
		t.Errorf("before: %d objects, %d files, %d descriptors; after: %d, %d, %d", objects, files, fds, o, f, n)
	}
	if m.rm.Mappings() != 0 || mapper.Mapped() != 0 {
		t.Errorf("%d mappings, %d bytes are left", m.rm.Mappings(), mapper.Mapped())
	}
}
