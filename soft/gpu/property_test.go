package gpu_test

import (
	"bytes"
	"os"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/culvert-io/culvert/gpu"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
)

// A buffer is an allocation and what it must hold. Imports share the content.
type buffer struct {
	kind gpu.Kind
	dev  int
	want []byte
}

// A world is a machine under random calls, beside a model of all its memory.
// Every byte of every allocation is always what the model says.
type world struct {
	steps    int
	scratch  []byte
	drv      *softgpu.Driver
	devs     []gpu.Device
	buffers  map[gpu.Addr]*buffer
	files    []*exported
	accesses []*softgpu.Access
}

type exported struct {
	f    *os.File
	dev  int
	want []byte
}

var allocKinds = []gpu.Kind{gpu.KindDevice, gpu.KindDevice, gpu.KindDevice, gpu.KindVirtual, gpu.KindHost, gpu.KindManaged}

func (w *world) alloc(t *rapid.T) {
	k := rapid.SampledFrom(allocKinds).Draw(t, "kind")
	n := rapid.SampledFrom([]uint64{1, 100, 511, 4097, 65536, 300_000, 1 << 20}).Draw(t, "size")
	i := rapid.IntRange(0, len(w.devs)-1).Draw(t, "device")
	a, err := w.devs[i].Alloc(k, n, 0)
	if err != nil {
		if gpu.CodeOf(err) != gpu.ErrOutOfMemory {
			t.Fatal(err)
		}
		return
	}
	if k == gpu.KindVirtual {
		n = (n + 2<<20 - 1) &^ (2<<20 - 1)
	}
	b := &buffer{kind: k, dev: i, want: make([]byte, n)}
	w.buffers[a] = b
	must(t, w.devs[i].CopyOut(b.want, a)) // undefined, but it must not change
}

// pick draws an allocation and a range in it.
func (w *world) pick(t *rapid.T, label string) (a gpu.Addr, b *buffer, off, n uint64) {
	if len(w.buffers) == 0 {
		t.Skip("no allocations")
	}
	addrs := make([]gpu.Addr, 0, len(w.buffers))
	for a := range w.buffers {
		addrs = append(addrs, a)
	}
	slices.Sort(addrs)
	a = rapid.SampledFrom(addrs).Draw(t, label)
	b = w.buffers[a]
	off = rapid.Uint64Range(0, uint64(len(b.want))-1).Draw(t, label+" offset")
	n = rapid.Uint64Range(0, uint64(len(b.want))-off).Draw(t, label+" size")
	return a, b, off, n
}

func (w *world) free(t *rapid.T) {
	a, b, _, _ := w.pick(t, "buffer")
	must(t, w.devs[b.dev].Free(a))
	delete(w.buffers, a)
}

func (w *world) copyIn(t *rapid.T) {
	a, b, off, n := w.pick(t, "buffer")
	src := bytes.Repeat([]byte{rapid.Byte().Draw(t, "byte")}, int(n))
	must(t, w.devs[b.dev].CopyIn(a+gpu.Addr(off), src))
	copy(b.want[off:], src)
}

func (w *world) copy(t *rapid.T) {
	a, b, off, n := w.pick(t, "destination")
	a2, b2, off2, n2 := w.pick(t, "source")
	n = min(n, n2)
	if &b.want[0] == &b2.want[0] {
		return // the order of overlapping copies is undefined
	}
	run := w.devs[b.dev].Copy
	if rapid.Bool().Draw(t, "stream") {
		s, err := w.devs[b2.dev].NewStream()
		must(t, err)
		defer func() {
			must(t, s.Synchronize())
			must(t, s.Close())
		}()
		run = s.Copy
	}
	must(t, run(a+gpu.Addr(off), a2+gpu.Addr(off2), n))
	copy(b.want[off:off+n], b2.want[off2:])
}

func (w *world) fill(t *rapid.T) {
	a, b, off, n := w.pick(t, "buffer")
	width := rapid.SampledFrom([]int{1, 2, 4}).Draw(t, "width")
	off -= off % uint64(width)
	n /= uint64(width)
	v := rapid.Uint32().Draw(t, "value")
	must(t, w.devs[b.dev].Fill(a+gpu.Addr(off), v, width, n))
	for i := range n * uint64(width) {
		b.want[off+i] = byte(v >> (8 * (i % uint64(width))))
	}
}

// wrong makes a call that must fail and change nothing.
func (w *world) wrong(t *rapid.T) {
	a, b, off, _ := w.pick(t, "buffer")
	d, size := w.devs[b.dev], uint64(len(b.want))
	calls := map[string]func() error{
		"past the end": func() error { return d.CopyIn(a+gpu.Addr(off), make([]byte, size-off+1)) },
		"fill over":    func() error { return d.Fill(a+gpu.Addr(off), 0, 1, size-off+1) },
		"fill huge":    func() error { return d.Fill(a, 0, 4, 1<<62) },
		"free inside":  func() error { return d.Free(a + gpu.Addr(min(off+1, size-1)|1)) },
		"register":     func() error { return d.Register(uintptr(a), size, 0) },
		"unregister":   func() error { return d.Unregister(uintptr(a)) },
		"alloc":        func() error { _, err := d.Alloc(b.kind, 1<<60, 0); return err },
	}
	name := rapid.SampledFrom([]string{"past the end", "fill over", "fill huge", "free inside", "register", "unregister", "alloc"}).Draw(t, "call")
	if err := calls[name](); err == nil {
		t.Fatalf("%s of %v memory, %d bytes at %v: no error", name, b.kind, size, a)
	}
}

func (w *world) lend(t *rapid.T) {
	a, b, off, n := w.pick(t, "buffer")
	g, ok := w.drv.Find(a)
	if !ok || n == 0 {
		return
	}
	l, err := g.Acquire(a+gpu.Addr(off), n)
	must(t, err)
	v := rapid.Byte().Draw(t, "byte")
	if !bytes.Equal(join(l.Segs()), b.want[off:off+n]) {
		t.Fatal("a access shows other bytes than the memory")
	}
	for _, s := range l.Segs() {
		for i := range s {
			s[i] = v
		}
	}
	copy(b.want[off:off+n], bytes.Repeat([]byte{v}, int(n)))
	w.accesses = append(w.accesses, l)
}

func (w *world) giveBack(t *rapid.T) {
	if len(w.accesses) == 0 {
		t.Skip("no loans")
	}
	w.accesses[0].Release()
	w.accesses = w.accesses[1:]
}

func (w *world) export(t *rapid.T) {
	a, b, _, _ := w.pick(t, "buffer")
	f, err := w.devs[b.dev].Export(a, 1, gpu.ExportPosixFD)
	if b.kind != gpu.KindVirtual {
		if gpu.CodeOf(err) != gpu.ErrInvalidValue {
			t.Fatalf("export of %v memory: %v", b.kind, err)
		}
		return
	}
	must(t, err)
	w.files = append(w.files, &exported{f, b.dev, b.want})
}

func (w *world) importing(t *rapid.T) {
	if len(w.files) == 0 {
		t.Skip("no exports")
	}
	e := w.files[0]
	if rapid.Bool().Draw(t, "close") {
		must(t, e.f.Close())
		w.files = w.files[1:]
		return
	}
	a, err := w.devs[e.dev].Import(e.f, uint64(len(e.want)))
	must(t, err)
	w.buffers[a] = &buffer{gpu.KindVirtual, e.dev, e.want}
}

// check is the property. Looking at every fourth step finds as much as looking
// at all of them: what was changed stays changed.
func (w *world) check(t *rapid.T) {
	if w.steps++; w.steps%4 != 0 {
		return
	}
	w.compare(t)
}

func (w *world) compare(t *rapid.T) {
	for a, b := range w.buffers {
		got := w.scratch[:len(b.want)]
		must(t, w.devs[b.dev].CopyOut(got, a))
		if !bytes.Equal(got, b.want) {
			t.Fatalf("%v memory of GPU %d, %d bytes at %v, was changed", b.kind, b.dev, len(b.want), a)
		}
	}
}

func (w *world) end(t *rapid.T, memory uint64) {
	w.compare(t)
	for _, l := range w.accesses {
		l.Release()
	}
	for _, e := range w.files {
		must(t, e.f.Close())
	}
	for a, b := range w.buffers {
		must(t, w.devs[b.dev].Free(a))
	}
	for i, d := range w.devs {
		if got := freeMemory(t, d); got != memory {
			t.Errorf("GPU %d: %d bytes free in the end, want %d", i, got, memory)
		}
	}
	must(t, w.drv.Close())
}

func TestNoCallChangesAnotherAllocation(t *testing.T) {
	const memory = 6 << 20 // little, so that it runs out now and then
	for name, cfg := range map[string]softgpu.Config{"mapped": {}, "heap": {Backing: softgpu.Heap}} {
		if raceEnabled && cfg.Backing != softgpu.Heap {
			continue // the detector sees nothing there
		}
		t.Run(name, func(t *testing.T) {
			scratch := make([]byte, memory)
			rapid.Check(t, func(t *rapid.T) {
				cfg.Models = append(tiny(memory), tiny(memory)...)
				cfg.Scatter = rapid.Bool().Draw(t, "scatter")
				cfg.Seed = rapid.Uint64().Draw(t, "seed")
				d, err := softgpu.New(cfg)
				must(t, err)
				w := &world{scratch: scratch, drv: d, buffers: map[gpu.Addr]*buffer{}}
				for i := range 2 {
					x, err := d.Open(i)
					must(t, err)
					w.devs = append(w.devs, x)
				}
				t.Repeat(map[string]func(*rapid.T){
					"alloc": w.alloc, "alloc again": w.alloc, "free": w.free, "copy in": w.copyIn, "copy": w.copy, "fill": w.fill,
					"wrong": w.wrong, "lend": w.lend, "return": w.giveBack, "export": w.export, "import": w.importing,
					"": w.check,
				})
				w.end(t, memory)
			})
		})
	}
}

// TestStreamWorkIsDoneInOrder compares random work on a stream with the same
// work done one call after the other.
func TestStreamWorkIsDoneInOrder(t *testing.T) {
	_, x := device(t, softgpu.Config{Models: tiny(32 << 20), Scatter: true})
	const n = 200_000
	a := alloc(t, x, gpu.KindDevice, n)
	rapid.Check(t, func(t *rapid.T) {
		must(t, x.Fill(a, 0, 1, n))
		want := make([]byte, n)
		s, err := x.NewStream()
		must(t, err)
		seen := true
		for range rapid.IntRange(1, 40).Draw(t, "tasks") {
			off := rapid.IntRange(0, n/8-1).Draw(t, "offset") * 8
			size := rapid.IntRange(0, n-off).Draw(t, "size")
			v := rapid.Byte().Draw(t, "byte")
			switch rapid.IntRange(0, 3).Draw(t, "task") {
			case 0:
				must(t, s.Fill(a+gpu.Addr(off), uint32(v), 1, uint64(size)))
				copy(want[off:off+size], bytes.Repeat([]byte{v}, size))
			case 1:
				size = min(size, off)
				must(t, s.Copy(a, a+gpu.Addr(off), uint64(size)))
				copy(want[:size], want[off:off+size])
			case 2:
				must(t, s.Write(a+gpu.Addr(off), uint64(v), 8))
				copy(want[off:off+8], []byte{v, 0, 0, 0, 0, 0, 0, 0})
			case 3:
				expect := want[off]
				must(t, s.Do(func() { seen = seen && read(t, x, a+gpu.Addr(off), 1)[0] == expect }))
			}
		}
		must(t, s.Synchronize())
		must(t, s.Close())
		if !seen {
			t.Fatal("a host function saw the memory before or after its turn")
		}
		if !bytes.Equal(read(t, x, a, n), want) {
			t.Fatal("work on a stream was not done in order")
		}
	})
}
