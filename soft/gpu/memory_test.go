package gpu_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-io/culvert/gpu"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
)

func TestFreshMemoryIsDirty(t *testing.T) {
	eachLayout(t, func(t *testing.T, _ *softgpu.GPU, x *softgpu.Device) {
		for _, n := range []int{1, 1000, 1 << 20, 16 << 20} {
			a := alloc(t, x, gpu.KindDevice, uint64(n))
			if i := bytes.IndexByte(read(t, x, a, n), 0); i >= 0 {
				t.Errorf("%d bytes: byte %d is zero", n, i)
			}
		}
		const large = 32 << 20
		a := alloc(t, x, gpu.KindDevice, large)
		for i := gpu.Addr(0); i < large; i += softgpu.FrameSize {
			if bytes.IndexByte(read(t, x, a+i, 4096), 0) >= 0 {
				t.Fatalf("the frame at %d of a large allocation has zeroes in its first page", i)
			}
		}
	})
}

// With Zero, memory is zero whenever it is allocated, also if it was just freed.
func TestFreshMemoryIsZero(t *testing.T) {
	for name, backing := range map[string]softgpu.Backing{"mapped": softgpu.Mapped, "heap": softgpu.Heap} {
		for _, n := range []uint64{1000, 1 << 20, 4 << 20} {
			_, x := device(t, softgpu.Config{Models: tiny(8 << 20), Backing: backing, Zero: true})
			alloc(t, x, gpu.KindDevice, 16) // keeps the block of small allocations
			for round := range 3 {
				a := alloc(t, x, gpu.KindDevice, n)
				if got := read(t, x, a, int(n)); !bytes.Equal(got, make([]byte, n)) {
					t.Errorf("%s, %d bytes, round %d: not zero", name, n, round)
				}
				must(t, x.Fill(a, 0xff, 1, n))
				free(t, x, a)
			}
		}
	}
}

// A small allocation next to another one clears its own bytes only.
func TestZeroKeepsNeighbours(t *testing.T) {
	_, x := device(t, softgpu.Config{Models: tiny(4 << 20), Zero: true})
	a := alloc(t, x, gpu.KindDevice, 1000)
	must(t, x.Fill(a, 0xff, 1, 1000))
	alloc(t, x, gpu.KindDevice, 1000)
	if bytes.IndexByte(read(t, x, a, 1000), 0) >= 0 {
		t.Error("another allocation cleared memory in use")
	}
}

func TestFreedMemoryComesBackWithItsBytes(t *testing.T) {
	for _, n := range []uint64{1000, 4 << 20} {
		_, x := device(t, softgpu.Config{Models: tiny(4 << 20)})
		secret := []byte("somebody's secret")
		a := alloc(t, x, gpu.KindDevice, n)
		must(t, x.CopyIn(a+100, secret))
		free(t, x, a)
		b := alloc(t, x, gpu.KindDevice, n)
		if got := read(t, x, b+100, len(secret)); !bytes.Equal(got, secret) {
			t.Errorf("%d bytes: reused memory holds %q", n, got)
		}
	}
}

func TestOutOfMemoryNamesFreeAndAsked(t *testing.T) {
	_, x := device(t, softgpu.Config{Models: tiny(8 << 20)})
	alloc(t, x, gpu.KindDevice, 4<<20)
	_, err := x.Alloc(gpu.KindDevice, 5<<20, 0)
	wantCode(t, "alloc", err, gpu.ErrOutOfMemory)
	if !errors.Is(err, gpu.ErrOutOfMemory) {
		t.Errorf("errors.Is does not find the code in %v", err)
	}
	for _, part := range []string{"memory_test.go:", "cuMemAlloc(5242880)", "CUDA_ERROR_OUT_OF_MEMORY", "4194304 bytes free", "5242880 asked for"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not say %q: %v", part, err)
		}
	}
}

func TestAllMemoryCanBeUsedAndComesBack(t *testing.T) {
	for _, scatter := range []bool{false, true} {
		for _, n := range []uint64{512, 100_000, 1 << 20, 2 << 20, 3 << 20} {
			t.Run(fmt.Sprintf("%t-%d", scatter, n), func(t *testing.T) {
				memory := uint64(12 << 20)
				if testing.Short() && n < 1<<20 { // 24576 allocations take 10 s under the race detector
					memory = 4 << 20
				}
				_, x := device(t, softgpu.Config{Models: tiny(memory), Scatter: scatter})
				var all []gpu.Addr
				for {
					a, err := x.Alloc(gpu.KindDevice, n, 0)
					if err != nil {
						wantCode(t, "alloc", err, gpu.ErrOutOfMemory)
						break
					}
					all = append(all, a)
				}
				const block = 2 << 20
				want := memory / ((n + block - 1) &^ (block - 1))
				if n < 1<<20 {
					want = memory / block * (block / ((n + 511) &^ 511))
				}
				if uint64(len(all)) != want {
					t.Errorf("%d allocations, want %d", len(all), want)
				}
				// An order that leaves holes.
				for i, a := range slices.Backward(all) {
					if i%2 == 0 {
						free(t, x, a)
					}
				}
				for i, a := range all {
					if i%2 == 1 {
						free(t, x, a)
					}
				}
				if got := freeMemory(t, x); got != memory {
					t.Errorf("%d bytes free in the end, want %d", got, memory)
				}
				free(t, x, alloc(t, x, gpu.KindDevice, memory))
			})
		}
	}
}

func TestScatteredFramesAreNotNeighbours(t *testing.T) {
	for _, scatter := range []bool{false, true} {
		d, x := device(t, softgpu.Config{Scatter: scatter, Seed: 42})
		g, err := d.GPU(0)
		must(t, err)
		a := alloc(t, x, gpu.KindDevice, 16<<20)
		l, err := g.Acquire(a, 16<<20)
		must(t, err)
		frames, _ := l.Frames()
		frames = slices.Clone(frames)
		l.Release()
		together := 0
		for i := 1; i < len(frames); i++ {
			if frames[i] == frames[i-1]+1 {
				together++
			}
		}
		if scatter && together > len(frames)/4 {
			t.Errorf("%d of %d scattered frames follow their neighbour", together, len(frames))
		}
		if !scatter && together != len(frames)-1 {
			t.Errorf("only %d of %d frames follow their neighbour", together, len(frames))
		}
		slices.Sort(frames)
		if len(slices.Compact(frames)) != 256 {
			t.Error("a frame was given out twice")
		}
	}
}

func TestScatterIsRepeatable(t *testing.T) {
	frames := func(seed uint64) []uint64 {
		d, x := device(t, softgpu.Config{Scatter: true, Seed: seed})
		g, err := d.GPU(0)
		must(t, err)
		l, err := g.Acquire(alloc(t, x, gpu.KindDevice, 4<<20), 4<<20)
		must(t, err)
		defer l.Release()
		f, _ := l.Frames()
		return f
	}
	if a, b := frames(1), frames(1); !slices.Equal(a, b) {
		t.Errorf("the same seed gave %d and %d", a, b)
	}
	if a, b := frames(1), frames(2); slices.Equal(a, b) {
		t.Errorf("another seed gave the same frames")
	}
}

func TestAddressesAreNotReusedAtOnce(t *testing.T) {
	_, x := device(t, softgpu.Config{})
	seen := map[gpu.Addr]bool{}
	for range 100 {
		a := alloc(t, x, gpu.KindDevice, 2<<20)
		free(t, x, a)
		if seen[a] {
			t.Fatalf("address %v was valid, freed and is valid again", a)
		}
		seen[a] = true
	}
}

func TestSmallAllocationsShareABlock(t *testing.T) {
	d, x := device(t, softgpu.Config{})
	g, err := d.GPU(0)
	must(t, err)
	a, b := alloc(t, x, gpu.KindDevice, 100), alloc(t, x, gpu.KindDevice, 1<<20-1)
	large := alloc(t, x, gpu.KindDevice, 1<<20)
	block := func(a gpu.Addr) gpu.Addr {
		base, size, _, err := g.Block(a)
		if err != nil || size != 2<<20 {
			t.Errorf("block of %v: %d bytes, %v", a, size, err)
		}
		return base
	}
	if block(a) != block(b) {
		t.Error("small allocations do not share a block")
	}
	if block(large) == block(a) || block(large) != large {
		t.Error("an allocation of 1 MiB has no block of its own")
	}
	if _, _, _, err := g.Block(large + 2<<20); err == nil {
		t.Error("a block where nothing was allocated")
	}
	if g2, ok := d.Find(a); !ok || g2 != g {
		t.Error("the card of an address was not found")
	}
	if _, ok := d.Find(gpu.Addr(1 << 40)); ok {
		t.Error("a card for an address of nobody")
	}
}
