package ring

import (
	"sync"
	"testing"
	"time"

	"github.com/culvert-io/culvert/gpu"
)

// A togetherGPU pins memory only when so many goroutines are about to.
type togetherGPU struct {
	gpu.Device
	t    *testing.T
	mu   sync.Mutex
	wait int // that have to come
	met  chan struct{}
}

func (g *togetherGPU) arrive() {
	g.mu.Lock()
	if g.wait--; g.wait == 0 {
		close(g.met)
	}
	met := g.met
	g.mu.Unlock()
	select {
	case <-met:
	case <-time.After(time.Minute): // only if the test fails
		g.t.Error("memory is pinned by one goroutine after the other")
	}
}

func (g *togetherGPU) Register(host uintptr, n uint64, f gpu.Flags) error {
	g.arrive()
	return g.Device.Register(host, n, f)
}

func (g *togetherGPU) Alloc(k gpu.Kind, n uint64, f gpu.Flags) (gpu.Addr, error) {
	if k == gpu.KindHost {
		g.arrive()
	}
	return g.Device.Alloc(k, n, f)
}

// TestPrepare: the pipelines of a large transfer are made at the same time, within the
// budget, and a transfer uses them.
func TestPrepare(t *testing.T) {
	const workers = 4
	g := &togetherGPU{Device: openGPU(t), t: t, wait: 1, met: make(chan struct{})}
	r, err := New(g, Config{Workers: workers, Slot: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	g.mu.Lock()
	g.wait, g.met = workers-1, make(chan struct{})
	g.mu.Unlock()
	r.Prepare()
	r.Prepare() // makes no more
	<-g.met
	if n := r.sched.pipelines; n != workers {
		t.Errorf("%d pipelines, want %d", n, workers)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if g.wait != 0 {
		t.Errorf("memory was pinned %d times too often", -g.wait)
	}
	r.Prepare() // of a closed ring does nothing
}
