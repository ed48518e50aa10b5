package ring

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/culvert-io/culvert/gpu"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
)

// A crowd is GPUs whose first copies wait until each of them has one under way.
type crowd struct {
	t    *testing.T
	left atomic.Int32
	met  chan struct{}
}

func (c *crowd) arrive() {
	if c.left.Add(-1) == 0 {
		close(c.met)
	}
	select {
	case <-c.met:
	case <-time.After(time.Minute): // only if the test fails
		c.t.Error("a GPU waits while another one is fed")
	}
}

type crowdGPU struct {
	gpu.Device
	all  *crowd
	once sync.Once
}

func (g *crowdGPU) NewStream() (gpu.Stream, error) {
	s, err := g.Device.NewStream()
	return &crowdStream{s, g}, err
}

type crowdStream struct {
	gpu.Stream
	g *crowdGPU
}

func (s *crowdStream) Copy(dst, src gpu.Addr, n uint64) error {
	s.g.once.Do(s.g.all.arrive)
	return s.Stream.Copy(dst, src, n)
}

// TestSeveralGPUs: one process feeds four GPUs at once from one file. Each ring has
// threads, streams and pinned memory of its own, so that no GPU waits for another: the
// first copy of each begins before any of them is done.
func TestSeveralGPUs(t *testing.T) {
	const gpus, n = 4, 6 << 20
	cfg := softgpu.Config{Models: slices.Repeat([]softgpu.Model{softgpu.H200()}, gpus)}
	if race {
		cfg.Backing = softgpu.Heap
	}
	drv, err := softgpu.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { drv.Close() })
	f := newFile(t, noise(4, n))
	all := &crowd{t: t, met: make(chan struct{})}
	all.left.Store(gpus)
	var rings [gpus]*Ring
	var buffers [gpus]*buffer
	for i := range rings {
		dev, err := drv.Open(i)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { dev.Close() })
		rings[i] = openRing(t, &crowdGPU{Device: dev, all: all}, Config{Slot: 1 << 20, Workers: 2})
		buffers[i] = newBuffer(t, dev, n)
	}
	var wg sync.WaitGroup
	for i, r := range rings {
		wg.Go(func() {
			req := []Request{{Buffered: f.buffered, Direct: -1, Addr: buffers[i].addr(), Len: n}}
			if err := r.Run(context.Background(), req, make([]Result, 1)); err != nil {
				t.Errorf("gpu:%d: %v", i, err)
			}
		})
	}
	wg.Wait()
	for i, b := range buffers {
		if string(b.bytes(t)) != string(f.data) {
			t.Errorf("gpu:%d has other bytes", i)
		}
	}
}
