package bench

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/limit"
	"github.com/culvert-io/culvert/route"
)

// A memoryless device hands out addresses with nothing behind them.
type memoryless struct{ gpu.Device }

func (memoryless) Alloc(gpu.Kind, uint64, gpu.Flags) (gpu.Addr, error) { return 1 << 20, nil }
func (memoryless) Free(gpu.Addr) error                                 { return nil }
func (memoryless) Info() gpu.Info                                      { return gpu.Info{} }

// A recorder is an engine that moves nothing, takes time, and remembers its calls.
type recorder struct {
	take [2]time.Duration

	mu   sync.Mutex
	offs [2][]int64
}

func (c *recorder) engine() *engine {
	return &engine{"recorder", func(gpu.Span) (*caller, error) { return &caller{c.do, func() {}}, nil }, func() {}}
}

func (c *recorder) do(_ context.Context, dir route.Dir, offs []int64, block int64, sum *route.Receipt) error {
	time.Sleep(c.take[dir])
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offs[dir] = append(c.offs[dir], offs...)
	sum.Bytes += block * int64(len(offs))
	return nil
}

func TestMixIsExactAndCountedApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, percent := range []int{1, 33, 70, 99} {
			rec := &recorder{take: [2]time.Duration{time.Millisecond, 3 * time.Millisecond}}
			w := Workload{Pattern: SeqMixed, Block: 4096, Threads: 1, Batch: 2, ReadPercent: percent, Bytes: 200 * 4096}
			r := &run{w: w, e: rec.engine(), size: 1 << 20, dev: memoryless{}}
			res, err := r.do(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if res.Reads.Ops != int64(2*percent) || res.Writes.Ops != int64(200-2*percent) || res.Ops != 200 {
				t.Errorf("%d %%: %d reads and %d writes of %d", percent, res.Reads.Ops, res.Writes.Ops, res.Ops)
			}
			if res.Reads.Moved != res.Reads.Ops*4096 || res.Writes.Moved != res.Writes.Ops*4096 || res.Moved != 200*4096 {
				t.Errorf("%d %%: %d and %d bytes of %d", percent, res.Reads.Moved, res.Writes.Moved, res.Moved)
			}
			if reads, writes := res.Reads.Latency.Max, res.Writes.Latency.Max; reads > 1010 || writes < 2990 || res.Latency.Max != writes {
				t.Errorf("%d %%: reads took %v us, writes %v, the longest %v", percent, reads, writes, res.Latency.Max)
			}
			for dir, offs := range rec.offs { // the first two are of the call that is not measured
				for i, off := range offs[2:] {
					if want := int64(i) % 256 * 4096; off != want {
						t.Fatalf("%d %%: direction %d, block %d is at %d, not %d", percent, dir, i, off, want)
					}
				}
			}
		}
	})
}

// Callers that begin at different places of the mix do not write at the same time.
func TestMixOfCallers(t *testing.T) {
	w := Workload{Pattern: RandMixed, Threads: 4, ReadPercent: 75}
	var writes []int
	for i := range 4 {
		m := w.mix(i)
		for n := range 4 {
			if m.next() == route.Write {
				writes = append(writes, n)
			}
		}
	}
	slices.Sort(writes)
	if !slices.Equal(writes, []int{0, 1, 2, 3}) {
		t.Errorf("callers write in their calls %v", writes)
	}
}

func TestMixCheck(t *testing.T) {
	good := Workload{Pattern: RandMixed, ReadPercent: 70}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for _, change := range []func(*Workload){
		func(w *Workload) { w.ReadPercent = 0 },
		func(w *Workload) { w.ReadPercent = 100 },
		func(w *Workload) { w.Cold = true },
		func(w *Workload) { w.Verify = true },
	} {
		w := good
		if change(&w); w.Check() == nil {
			t.Errorf("%+v is accepted", w)
		}
	}
}

// TestLimit: callers share the limit, waiting is no latency, and a run ends in time
// also if the next call is far away.
func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			perSecond, ops int64
			seconds        float64
		}{{10 * 4096, 95, 9.5}, {1, 1, 9.5}} {
			rec := &recorder{take: [2]time.Duration{time.Millisecond, 0}}
			w := Workload{Pattern: SeqRead, Block: 4096, Threads: 4, Batch: 1, Time: 9500 * time.Millisecond, Limit: c.perSecond}
			r := &run{w: w, e: rec.engine(), size: 1 << 20, dev: memoryless{}, rate: limit.New(c.perSecond)}
			res, err := r.do(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			// Whether the call that is due at the end is made is not decided.
			if d := res.Ops - c.ops; d < 0 || d > 1 || res.Seconds < c.seconds || res.Seconds > c.seconds+0.01 {
				t.Errorf("%d bytes per second: %d operations in %v s, want %d in %v", c.perSecond, res.Ops, res.Seconds, c.ops, c.seconds)
			}
			if res.Latency.Max > 1010 {
				t.Errorf("%d bytes per second: latency of %v us has waiting in it", c.perSecond, res.Latency.Max)
			}
		}
	})
}
