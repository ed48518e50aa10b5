package nvfs

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/culvert-io/culvert/soft/kernel/p2p"
)

// A counter counts calls: n = ok + err + in progress.
type counter struct{ n, ok, err atomic.Int64 }

func (c *counter) done(err error) {
	if err != nil {
		c.err.Add(1)
		return
	}
	c.ok.Add(1)
}

// An opCounter counts transfers in one direction.
type opCounter struct {
	counter
	bytes, active, stateErr atomic.Int64
	took                    atomic.Int64 // nanoseconds
}

// stats is what /proc/driver/nvidia-fs/stats shows.
type stats struct {
	opens, shadow, munmap atomic.Int64
	mmap, bar1, batches   counter
	frees, callbacks      atomic.Int64
	batchActive           atomic.Int64
	batchTook             atomic.Int64
	reads, writes         opCounter
	sparse, sparseIO      atomic.Int64
	holes, holePages      atomic.Int64
	mixed, dmaMap         atomic.Int64

	mu   sync.Mutex
	gpus []*gpuStats
}

// gpuStats is the line of a GPU of which memory was pinned.
type gpuStats struct {
	name         string
	pinned, most uint64
}

func (s *stats) op(write bool) *opCounter {
	if write {
		return &s.writes
	}
	return &s.reads
}

// gpuLine returns the name of a GPU in /proc.
func gpuLine(t *p2p.PageTable) string {
	return fmt.Sprintf("GPU %s  uuid:%x-%x-%x-%x-%x", t.Port().Name(), t.UUID[0:4], t.UUID[4:6], t.UUID[6:8], t.UUID[8:10], t.UUID[10:16])
}

func (s *stats) register(g *mgroup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.gpus, func(x *gpuStats) bool { return x.name == g.gpu })
	if i < 0 {
		i = len(s.gpus)
		s.gpus = append(s.gpus, &gpuStats{name: g.gpu})
	}
	x := s.gpus[i]
	x.pinned += g.buffer.n
	x.most = max(x.most, x.pinned)
}

func (s *stats) unregister(g *mgroup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.gpus {
		if x.name == g.gpu {
			x.pinned -= g.buffer.n
		}
	}
}

// since adds the time since begun.
func since(sum *atomic.Int64, begun time.Time) { sum.Add(int64(time.Since(begun))) }
