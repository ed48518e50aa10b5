package gpu_test

import (
	"bytes"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/culvert-io/culvert/gpu"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
)

// TestManyGoroutinesShareADevice has each work on memory of its own, with
// frames of the others next to it. The heap backing shows the race detector
// what happens.
func TestManyGoroutinesShareADevice(t *testing.T) {
	for name, backing := range map[string]softgpu.Backing{"mapped": softgpu.Mapped, "heap": softgpu.Heap} {
		t.Run(name, func(t *testing.T) {
			_, x := device(t, softgpu.Config{Models: tiny(64 << 20), Backing: backing, Scatter: true})
			var wg sync.WaitGroup
			for i := range 8 {
				wg.Go(func() {
					for k := range 40 {
						worker(t, x, byte(i), rand.New(rand.NewPCG(uint64(i), uint64(k))))
					}
				})
			}
			wg.Wait()
			must(t, x.Synchronize())
			if got := freeMemory(t, x); got != 64<<20 {
				t.Errorf("%d bytes free in the end", got)
			}
		})
	}
}

// worker moves its bytes through everything and looks whether they arrive.
func worker(t *testing.T, x *softgpu.Device, id byte, rng *rand.Rand) {
	n := 1 + rng.IntN(300_000)
	want := bytes.Repeat([]byte{id}, n)
	k := []gpu.Kind{gpu.KindDevice, gpu.KindVirtual, gpu.KindHost}[rng.IntN(3)]
	a, err := x.Alloc(k, uint64(n), 0)
	if err != nil {
		t.Error(err)
		return
	}
	h, err := x.Alloc(gpu.KindHost, uint64(n), 0)
	if err != nil {
		t.Error(err)
		return
	}
	copy(gpu.HostBytes(h, uint64(n)), want)
	s, err := x.NewStream()
	if err != nil {
		t.Error(err)
		return
	}
	check := func(err error) {
		if err != nil {
			t.Error(err)
		}
	}
	check(s.Copy(a, h, uint64(n)))
	check(s.Fill(h, uint32(id)+1, 1, uint64(n)))
	check(s.Synchronize())
	if k != gpu.KindHost {
		l, err := x.GPU().Acquire(a, uint64(n))
		if err != nil {
			t.Error(err)
			return
		}
		if !bytes.Equal(join(l.Segs()), want) {
			t.Errorf("worker %d: the memory holds somebody else's bytes", id)
		}
		check(x.Free(a))
		if !bytes.Equal(join(l.Segs()), want) {
			t.Errorf("worker %d: freed memory changed under its loan", id)
		}
		l.Release()
	} else {
		check(x.Free(a))
	}
	if v := gpu.HostBytes(h, uint64(n)); v[0] != id+1 || v[n-1] != id+1 {
		t.Errorf("worker %d: pinned memory holds %d and %d", id, v[0], v[n-1])
	}
	check(s.Close())
	check(x.Free(h))
}

// TestOneOfManyFreesWins frees the same address from many goroutines.
func TestOneOfManyFreesWins(t *testing.T) {
	_, x := device(t, softgpu.Config{Models: tiny(8 << 20), Backing: softgpu.Heap})
	for range 100 {
		a := alloc(t, x, gpu.KindDevice, 4096)
		var mu sync.Mutex
		var wg sync.WaitGroup
		wins := 0
		for range 4 {
			wg.Go(func() {
				err := x.Free(a)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					wins++
				} else if gpu.CodeOf(err) != gpu.ErrInvalidValue {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if wins != 1 {
			t.Fatalf("%d of 4 frees succeeded", wins)
		}
	}
}
