package ring

import (
	"errors"
	"log/slog"
	"math"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/tune"
)

// A scheduler gives chunks of batches to pipelines, and pipelines to callers and
// workers. A pipeline belongs to one goroutine until it is released.
type scheduler struct {
	dev         gpu.Device
	near        *unix.CPUSet // where workers run; nil: anywhere
	log         *slog.Logger
	sizing      sizing
	newPipeline func() (*pipeline, error)
	readRate    tune.Rate // of one thread while the others read

	// mu guards what follows, and all batches between run and leave. It is never
	// held during I/O, and no other lock is taken while it is held.
	mu      sync.Mutex
	active  []*batch // with bytes left to take
	idle    []*batch // for reuse
	running int      // batches between enter and leave
	closed  bool     // for new batches
	drained sync.Cond

	free      []*pipeline // the last one released is acquired first
	pipelines int         // made or being made
	limit     int         // of pipelines while a source is read: as sized, or as many as could be made

	workers int
	asleep  int
	woken   int // of those asleep
	stopped bool
	wake    sync.Cond
	group   sync.WaitGroup
}

const (
	// minChunk is worth waking a worker. busyChunk is the smallest while most
	// pipelines are in use: many launches would only lengthen the queue.
	minChunk      = 256 << 10
	busyChunk     = 2 << 20
	minCoalescing = 128 << 10
	// minDirectWrite is the smallest chunk of a write with O_DIRECT. One call keeps a
	// disk busy; four threads with a quarter each took 3 times the processor time, for
	// being woken.
	minDirectWrite = 1 << 20
)

func (sc *scheduler) init(r *Ring) {
	sc.dev, sc.near, sc.log, sc.sizing, sc.newPipeline = r.dev, r.pool.near, r.log, r.sizing, r.newPipeline
	sc.limit = r.sizing.sources
	sc.drained.L, sc.wake.L = &sc.mu, &sc.mu
	seed(&sc.readRate)
}

// addFirst makes the pipeline that every ring has.
func (sc *scheduler) addFirst() error {
	p, err := sc.newPipeline()
	if err == nil {
		sc.free, sc.pipelines = append(sc.free, p), 1
	}
	return err
}

// prepare makes the pipelines that a large batch uses, each on a goroutine of its own.
// Batches do not wait for them.
func (sc *scheduler) prepare() {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	for most := sc.workerTargetLocked(); !sc.closed && sc.pipelines < min(most, sc.mostLocked()); {
		sc.pipelines++
		sc.group.Go(func() {
			if p := sc.ready(new(pipeline)); p != nil {
				sc.mu.Lock()
				sc.releaseLocked(p)
				sc.mu.Unlock()
			}
		})
	}
}

// enter returns a batch for one Run, which ends with leave.
func (sc *scheduler) enter() (*batch, error) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	if sc.closed {
		return nil, ErrClosed
	}
	sc.running++
	n := len(sc.idle)
	if n == 0 {
		return newBatch(min(coalesceLen, sc.sizing.slot/4)), nil
	}
	b := sc.idle[n-1]
	sc.idle = sc.idle[:n-1]
	return b, nil
}

func (sc *scheduler) leave(b *batch) {
	b.release()
	sc.mu.Lock()
	sc.idle = append(sc.idle, b)
	if sc.running--; sc.running == 0 && sc.closed {
		sc.drained.Signal()
	}
	sc.mu.Unlock()
}

// run works on a batch, if there is a pipeline for the caller, and waits until it is
// finished. A cancelled batch is finished when its chunks in flight are.
func (sc *scheduler) run(b *batch) {
	sc.mu.Lock()
	p := sc.startLocked(b)
	sc.mu.Unlock()
	if p = sc.ready(p); p != nil {
		sc.drive(p, b)
	}
	sc.mu.Lock()
	b.hasCaller = false
	if p != nil {
		sc.releaseLocked(p)
	} else {
		sc.wakeLocked(min(1, len(sc.free))) // one may have been released meanwhile
	}
	b.waiting = !b.finished()
	wait := b.waiting
	sc.mu.Unlock()
	if !wait {
		return
	}
	select {
	case <-b.done:
		return
	case <-b.ctx.Done():
	}
	sc.mu.Lock()
	sc.cancelLocked(b, b.ctx.Err())
	sc.mu.Unlock()
	<-b.done
}

// startLocked makes the batch's work known and wakes workers. It returns a pipeline
// for the caller, if one is free.
func (sc *scheduler) startLocked(b *batch) *pipeline {
	if len(sc.active) > 0 {
		b.share = math.MaxInt64
		for _, other := range sc.active {
			b.share = min(b.share, other.share)
		}
	}
	sc.active = append(sc.active, b)
	p := sc.acquireLocked()
	b.hasCaller = p != nil
	sc.wakeLocked(sc.extraWorkersLocked(b))
	return p
}

// chunkSizeLocked is the size of a batch's next chunk: what is left, divided among
// the pipelines that work on it and those that could.
func (sc *scheduler) chunkSizeLocked(b *batch) int64 {
	slot := sc.sizing.slot
	if b.oneChunk || b.takesTurns() {
		return slot
	}
	spare := sc.spareWorkersLocked()
	least := int64(busyChunk)
	if 2*spare > sc.workerTargetLocked() {
		least = minChunk
	}
	switch q := &b.reqs[b.next]; {
	case b.coalesces(b.next):
		least = minCoalescing
	case q.Write && q.Direct >= 0:
		least = max(least, minDirectWrite)
	}
	sharers := int64(spare + min(b.busy+1, sc.mostLocked()))
	return min(max(b.left/sharers, min(least, slot)), slot)
}

// acquireLocked takes a free pipeline. One without a stream must be made by ready.
func (sc *scheduler) acquireLocked() *pipeline {
	if n := len(sc.free); n > 0 {
		p := sc.free[n-1]
		sc.free = sc.free[:n-1]
		return p
	}
	if sc.pipelines < sc.mostLocked() {
		sc.pipelines++
		return new(pipeline)
	}
	return nil
}

// ready makes an acquired pipeline usable. If that fails the ring continues with
// those it has: New made the first.
func (sc *scheduler) ready(p *pipeline) *pipeline {
	if p == nil || p.stream != nil {
		return p
	}
	p, err := sc.newPipeline()
	if err == nil {
		return p
	}
	sc.mu.Lock()
	sc.pipelines--
	sc.limit = min(sc.limit, sc.pipelines)
	limit := sc.limit
	sc.mu.Unlock()
	sc.log.Warn("ring: cannot create a pipeline; continuing with fewer", "pipelines", limit, "error", err)
	return nil
}

// releaseLocked takes a pipeline back and wakes a worker if there is work for one:
// not for a last chunk that the batch's caller is about to take.
func (sc *scheduler) releaseLocked(p *pipeline) {
	sc.free = append(sc.free, p)
	spare := sc.spareWorkersLocked() > 0
	for _, b := range sc.active {
		if !b.hasCaller || spare && b.left > sc.chunkSizeLocked(b) {
			sc.wakeLocked(1)
			return
		}
	}
}

// drive processes chunks until there are none: for a caller, none of its own batch.
func (sc *scheduler) drive(p *pipeline, own *batch) {
	for {
		if len(p.idle) == 0 {
			p.finish()
		}
		s := p.idle[0]
		sc.mu.Lock()
		ok := sc.nextChunkLocked(s, own)
		sc.mu.Unlock()
		if !ok {
			break
		}
		p.idle = append(p.idle[:0], p.idle[1:]...)
		p.start(s)
		// One copy ahead is enough for writes: the file is slower than the GPU.
		for s.write && len(p.inFlight) > 1 {
			p.finish()
		}
		p.reap()
	}
	for len(p.inFlight) > 0 {
		p.finish()
	}
}

// nextChunkLocked takes the next chunk into s and reports whether there was one; for
// a caller only as long as its own batch has bytes left.
func (sc *scheduler) nextChunkLocked(s *slot, own *batch) bool {
	for own == nil || own.left > 0 {
		b := sc.pickLocked(own)
		if b == nil {
			return false
		}
		if err := b.ctx.Err(); err != nil {
			sc.cancelLocked(b, err)
			continue
		}
		b.take(s, sc.chunkSizeLocked(b))
		sc.deactivateLocked(b)
		return true
	}
	return false
}

// pickLocked selects the batch that has got the least. A caller prefers its own
// unless another is behind by more than two slots.
func (sc *scheduler) pickLocked(own *batch) *batch {
	var least *batch
	for _, b := range sc.active {
		if least == nil || b.share < least.share {
			least = b
		}
	}
	if own != nil && own.left > 0 && own.share <= least.share+2*sc.sizing.slot {
		return own
	}
	return least
}

// deactivateLocked removes a batch without bytes left from the active ones.
func (sc *scheduler) deactivateLocked(b *batch) {
	if b.left > 0 {
		return
	}
	for i, a := range sc.active {
		if a == b {
			last := len(sc.active) - 1
			sc.active[i] = sc.active[last]
			sc.active[last] = nil
			sc.active = sc.active[:last]
			return
		}
	}
}

// cancelLocked skips what was not taken yet of a batch.
func (sc *scheduler) cancelLocked(b *batch, cause error) {
	b.cancel(cause)
	sc.deactivateLocked(b)
	b.wakeCaller()
}

// complete accounts for a chunk.
func (sc *scheduler) complete(s *slot) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	b := s.batch
	b.busy--
	for i := range s.segments {
		b.account(&s.segments[i])
	}
	sc.deactivateLocked(b)
	b.wakeCaller()
}

// stop waits for batches and workers to end.
func (sc *scheduler) stop() error {
	sc.mu.Lock()
	if sc.closed {
		sc.mu.Unlock()
		return ErrClosed
	}
	sc.closed = true
	for sc.running > 0 {
		sc.drained.Wait()
	}
	sc.stopped = true
	sc.wake.Broadcast()
	sc.mu.Unlock()
	sc.group.Wait()
	return nil
}

// closePipelines follows stop.
func (sc *scheduler) closePipelines() (err error) {
	for _, p := range sc.free {
		err = errors.Join(err, p.close())
	}
	return err
}
