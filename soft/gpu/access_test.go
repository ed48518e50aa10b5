package gpu_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
)

// eachLayout runs a test on all sorts of memory, with 64 MiB of it.
func eachLayout(t *testing.T, run func(*testing.T, *softgpu.GPU, *softgpu.Device)) {
	for _, backing := range []softgpu.Backing{softgpu.Mapped, softgpu.Heap} {
		for _, scatter := range []bool{false, true} {
			t.Run(fmt.Sprintf("backing-%d-scatter-%t", backing, scatter), func(t *testing.T) {
				_, x := device(t, softgpu.Config{Models: tiny(64 << 20), Backing: backing, Scatter: scatter, Seed: 3})
				run(t, x.GPU(), x)
			})
		}
	}
}

func text(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i>>16) ^ byte(i*7)
	}
	return b
}

func TestAccessShowsTheBytesThemselves(t *testing.T) {
	eachLayout(t, func(t *testing.T, g *softgpu.GPU, x *softgpu.Device) {
		const n, off, part = 5 << 20, 70_001, 3 << 20
		a := alloc(t, x, gpu.KindDevice, n)
		must(t, x.CopyIn(a, text(n)))
		l, err := g.Acquire(a+off, part)
		must(t, err)
		if !bytes.Equal(join(l.Segs()), text(n)[off:off+part]) {
			t.Error("the access shows other bytes")
		}
		for _, s := range l.Segs() {
			clear(s)
		}
		l.Release()
		l.Release() // does nothing
		want := text(n)
		clear(want[off : off+part])
		if !bytes.Equal(read(t, x, a, n), want) {
			t.Error("what was written to the access is not in the memory, or more than that")
		}
	})
}

func TestLentFramesAreNotReusedBeforeTheirReturn(t *testing.T) {
	eachLayout(t, func(t *testing.T, g *softgpu.GPU, x *softgpu.Device) {
		const n = 32 << 20
		a := alloc(t, x, gpu.KindDevice, n)
		must(t, x.Fill(a, 1, 1, n))
		before := freeMemory(t, x)
		l, err := g.Acquire(a+100, 1000)
		must(t, err)
		free(t, x, a)
		if p, _ := x.Pointer(a); p.Kind != gpu.KindNone {
			t.Error("lent memory is still there for its owner")
		}
		if _, err := g.Acquire(a, 1); err == nil {
			t.Error("freed memory could be lent")
		}
		if got := freeMemory(t, x); got != before {
			t.Errorf("%d bytes free while the access lasts, want %d", got, before)
		}
		// Whoever takes all the rest must not get the lent frames.
		rest := alloc(t, x, gpu.KindDevice, before)
		must(t, x.Fill(rest, 2, 1, before))
		if !bytes.Equal(join(l.Segs()), bytes.Repeat([]byte{1}, 1000)) {
			t.Error("lent frames were given to somebody else")
		}
		free(t, x, rest)
		l.Release()
		if got := freeMemory(t, x); got != before+n {
			t.Errorf("%d bytes free after the return, want %d", got, before+n)
		}
	})
}

func TestLentPartOfASharedBlockIsNotReusedBeforeItsReturn(t *testing.T) {
	eachLayout(t, func(t *testing.T, g *softgpu.GPU, x *softgpu.Device) {
		neighbour := alloc(t, x, gpu.KindDevice, 4096)
		a := alloc(t, x, gpu.KindDevice, 4096)
		must(t, x.Fill(a, 1, 1, 4096))
		l, err := g.Acquire(a, 4096)
		must(t, err)
		free(t, x, a)
		for range 1000 {
			b := alloc(t, x, gpu.KindDevice, 4096)
			if b == a {
				t.Fatal("lent memory was allocated again")
			}
		}
		if got := join(l.Segs()); !bytes.Equal(got, bytes.Repeat([]byte{1}, 4096)) {
			t.Error("lent memory changed")
		}
		l.Release()
		if b := alloc(t, x, gpu.KindDevice, 4096); b != a {
			t.Errorf("returned memory at %v was not used again; got %v", a, b)
		}
		free(t, x, neighbour)
	})
}

func TestAccessOfNothing(t *testing.T) {
	eachLayout(t, func(t *testing.T, g *softgpu.GPU, x *softgpu.Device) {
		a := alloc(t, x, gpu.KindDevice, 3<<20) // a block of 4 MiB
		h := alloc(t, x, gpu.KindHost, 4096)
		for name, r := range map[string]struct {
			a gpu.Addr
			n uint64
		}{
			"size 0": {a, 0}, "past the block": {a, 4<<20 + 1}, "overflow": {a + 1, 1<<64 - 1},
			"host": {h, 1}, "zero": {0, 1}, "behind": {a + 4<<20, 1},
		} {
			_, err := g.Acquire(r.a, r.n)
			wantCode(t, "acquire "+name, err, gpu.ErrInvalidValue)
			_, err = g.OnFree(r.a, r.n, func() {})
			wantCode(t, "on free "+name, err, gpu.ErrInvalidValue)
		}
	})
}

func TestPartOfAnAccess(t *testing.T) {
	eachLayout(t, func(t *testing.T, g *softgpu.GPU, x *softgpu.Device) {
		const n = 4 << 20
		a := alloc(t, x, gpu.KindDevice, n)
		must(t, x.CopyIn(a, text(n)))
		whole, err := g.Acquire(a+3*softgpu.FrameSize, 10*softgpu.FrameSize)
		must(t, err)
		frames, first := whole.Frames()
		if len(frames) != 10 || first != 0 || whole.Len() != 10*softgpu.FrameSize {
			t.Fatalf("%d frames from %d on, %d bytes", len(frames), first, whole.Len())
		}
		free(t, x, a) // the access keeps the memory
		const off, part = 70_000, 300_000
		l, err := whole.Part(off, part)
		must(t, err)
		whole.Release()
		from := 3*softgpu.FrameSize + off
		if !bytes.Equal(join(l.Segs()), text(n)[from:from+part]) {
			t.Error("the part has other bytes")
		}
		got, first := l.Frames()
		if !slices.Equal(got, frames[1:6]) || first != off-softgpu.FrameSize {
			t.Errorf("the part is of frames %d, offset %d", got, first)
		}
		for name, r := range map[string][2]uint64{"size 0": {0, 0}, "past the end": {0, part + 1}, "overflow": {2, 1<<64 - 1}} {
			_, err := l.Part(r[0], r[1])
			wantCode(t, name, err, gpu.ErrInvalidValue)
		}
		l.Release()
	})
}

func TestMemoryUsedAgainHasANewGeneration(t *testing.T) {
	eachLayout(t, func(t *testing.T, g *softgpu.GPU, x *softgpu.Device) {
		const all = 64 << 20
		seen := map[uint64]bool{}
		for range 3 {
			a := alloc(t, x, gpu.KindDevice, all/2+1) // no other memory is left
			base, size, gen, err := g.Block(a + 1)
			must(t, err)
			if base != a || size != all/2+2<<20 || seen[gen] {
				t.Errorf("block of %d bytes at %v, allocated at %v, generation %d after %v", size, base, a, gen, seen)
			}
			seen[gen] = true
			free(t, x, a)
			_, _, _, err = g.Block(a)
			wantCode(t, "freed block", err, gpu.ErrInvalidValue)
		}
	})
}

func TestOnFreeRunsOnceBeforeTheMemoryIsGone(t *testing.T) {
	eachLayout(t, func(t *testing.T, g *softgpu.GPU, x *softgpu.Device) {
		const n = 4 << 20
		a := alloc(t, x, gpu.KindDevice, n)
		must(t, x.Fill(a, 9, 1, n))
		l, err := g.Acquire(a, n)
		must(t, err)
		before := freeMemory(t, x)
		calls := 0
		_, err = g.OnFree(a+n/2, 1, func() {
			calls++
			if freeMemory(t, x) != before || l.Segs()[0][0] != 9 {
				t.Error("the memory was gone before the hook had run")
			}
			l.Release()
		})
		must(t, err)
		cancel, err := g.OnFree(a, n, func() { t.Error("a cancelled hook ran") })
		must(t, err)
		if !cancel() || cancel() {
			t.Error("a hook can be cancelled once")
		}
		var after func() bool
		after, err = g.OnFree(a, n, func() {
			if after() {
				t.Error("a running hook was cancelled")
			}
		})
		must(t, err)
		free(t, x, a)
		if calls != 1 {
			t.Errorf("the hook ran %d times", calls)
		}
		if got := freeMemory(t, x); got != before+n {
			t.Errorf("%d bytes free, want %d", got, before+n)
		}
	})
}

func TestMemoryIsStillThereInAHook(t *testing.T) {
	eachLayout(t, func(t *testing.T, g *softgpu.GPU, x *softgpu.Device) {
		a := alloc(t, x, gpu.KindDevice, 2<<20)
		must(t, x.Fill(a, 9, 1, 2<<20))
		before := freeMemory(t, x)
		ran := false
		_, err := g.OnFree(a, 1, func() {
			ran = true
			if freeMemory(t, x) != before {
				t.Error("the memory can be used again before the hook has run")
			}
		})
		must(t, err)
		free(t, x, a)
		if !ran {
			t.Error("the hook did not run")
		}
	})
}

func TestOnFreeOfASharedBlockWaitsForTheLastAllocation(t *testing.T) {
	eachLayout(t, func(t *testing.T, g *softgpu.GPU, x *softgpu.Device) {
		a, b := alloc(t, x, gpu.KindDevice, 100), alloc(t, x, gpu.KindDevice, 100)
		ran := false
		_, err := g.OnFree(a&^0xffff, 65536, func() { ran = true })
		must(t, err)
		free(t, x, a)
		if ran {
			t.Error("the hook ran while the block was in use")
		}
		free(t, x, b)
		if !ran {
			t.Error("the hook did not run")
		}
	})
}

func TestOnFreeRunsOnClose(t *testing.T) {
	for name, end := range map[string]func(*softgpu.Driver, *softgpu.Device) error{
		"device": func(_ *softgpu.Driver, x *softgpu.Device) error { return x.Close() },
		"driver": func(d *softgpu.Driver, _ *softgpu.Device) error { return d.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			d, x := device(t, softgpu.Config{Models: tiny(8 << 20)})
			g := x.GPU()
			ran := 0
			for _, n := range []uint64{100, 2 << 20} {
				_, err := g.OnFree(alloc(t, x, gpu.KindDevice, n), 1, func() { ran++ })
				must(t, err)
			}
			must(t, end(d, x))
			if ran != 2 {
				t.Errorf("%d of 2 hooks ran", ran)
			}
		})
	}
}

func TestFreeWaitsForAHookThatBlocks(t *testing.T) {
	_, x := device(t, softgpu.Config{Models: tiny(8 << 20)})
	a := alloc(t, x, gpu.KindDevice, 2<<20)
	entered, leave := make(chan struct{}), make(chan struct{})
	_, err := x.GPU().OnFree(a, 1, func() {
		close(entered)
		<-leave
	})
	must(t, err)
	done := make(chan error, 1)
	go func() { done <- x.Free(a) }()
	<-entered
	// Others go on meanwhile, and a second Free finds nothing.
	free(t, x, alloc(t, x, gpu.KindDevice, 2<<20))
	wantCode(t, "second free", x.Free(a), gpu.ErrInvalidValue)
	select {
	case err := <-done:
		t.Errorf("Free returned (%v) while the hook ran", err)
	default:
	}
	close(leave)
	must(t, <-done)
}

func TestMemoryCanBeMapped(t *testing.T) {
	for _, scatter := range []bool{false, true} {
		_, x := device(t, softgpu.Config{Models: tiny(64 << 20), Scatter: scatter})
		const n, off = 2 << 20, 5 * 4096
		a := alloc(t, x, gpu.KindDevice, n)
		must(t, x.CopyIn(a, text(n)))
		l, err := x.GPU().Acquire(a, n)
		must(t, err)
		m, err := l.Mmap(off, n-off, unix.PROT_READ|unix.PROT_WRITE)
		must(t, err)
		b := gpu.HostBytes(gpu.Addr(m.Addr()), uint64(m.Len()))
		if !bytes.Equal(b, text(n)[off:]) {
			t.Fatal("the mapping shows other bytes")
		}
		for i := 5; i < len(b); i += softgpu.FrameSize {
			b[i] = 0xbb
			if got := read(t, x, a+gpu.Addr(off+i), 1); got[0] != 0xbb {
				t.Fatal("a store through the mapping is not in the memory")
			}
		}
		must(t, m.Revoke(-1))
		if !m.Mapped() {
			t.Error("revoked addresses are not taken any more")
		}
		must(t, m.Unmap())
		must(t, m.Unmap())
		must(t, m.Revoke(-1))
		if m.Mapped() {
			t.Error("an unmapped mapping is live")
		}
		l.Release()
	}
	_, x := device(t, softgpu.Config{Models: tiny(8 << 20), Backing: softgpu.Heap})
	if x.GPU().Mappable() {
		t.Error("heap memory claims to be mappable")
	}
}

func TestDriverDoesNotCloseUnderAnAccess(t *testing.T) {
	d, x := device(t, softgpu.Config{Models: tiny(8 << 20)})
	l, err := x.GPU().Acquire(alloc(t, x, gpu.KindDevice, 100), 100)
	must(t, err)
	if err := d.Close(); err == nil {
		t.Error("closed with an access outstanding")
	}
	l.Segs()[0][0]++ // still there
	l.Release()
	must(t, d.Close())
}
