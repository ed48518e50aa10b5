package ring

import (
	"math"
	"runtime"

	"golang.org/x/sys/unix"
)

const (
	// minPiece is worth calling a helper in; busyPiece is the smallest when most
	// lanes are taken, because many launches then only lengthen the queue.
	minChunk     = 256 << 10
	busyChunk    = 2 << 20
	minCoalesced = 128 << 10
)

// startLocked makes the op's work known and calls helpers in. It returns a lane
// for the caller to work with, if there is a free one.
func (r *Ring) startLocked(o *batch) *pipeline {
	if len(r.active) > 0 {
		o.share = math.MaxInt64
		for _, other := range r.active {
			o.share = min(o.share, other.share)
		}
	}
	r.active = append(r.active, o)
	l := r.acquirePipelineLocked()
	o.hasCaller = l != nil
	r.wakeWorkersLocked(r.extraWorkersLocked(o))
	return l
}

// Of those who write through the page cache a file lets in one at a time: while
// one writes two copy from the GPU, and more would only spin. Stores into pages
// have no such lock, but eight fill the memory.
const (
	pwriteWorkers = 3
	storeWorkers  = 8
)

// helpLocked is how many helpers to call for an op that begins.
func (r *Ring) extraWorkersLocked(o *batch) int {
	n := int(min((o.left-1)/r.chunkSizeLocked(o), int64(r.spareWorkersLocked())))
	switch q := &o.reqs[o.next]; {
	case !q.Write || q.Direct >= 0:
		return n
	case o.prog[o.next].mapped.mem != nil:
		return min(n, storeWorkers-1)
	case len(r.active) > 1: // perhaps on the same file
		return 0
	}
	return min(n, pwriteWorkers-1)
}

// pieceLocked is how large the next piece of an op should be: what is left,
// shared among the lanes that work on it and those that could.
func (r *Ring) chunkSizeLocked(o *batch) int64 {
	if o.oneChunk {
		return r.sizing.slot
	}
	spare := r.spareWorkersLocked()
	least := int64(busyChunk)
	if 2*spare > r.workerTargetLocked() {
		least = minChunk
	}
	if o.coalesces(o.next) {
		least = minCoalesced
	}
	sharers := int64(spare + min(o.busy+1, r.limit))
	return min(max(o.left/sharers, min(least, r.sizing.slot)), r.sizing.slot)
}

// callLocked wakes n helpers, or makes them.
func (r *Ring) wakeWorkersLocked(n int) {
	for ; n > 0; n-- {
		switch {
		case r.asleep > r.woken:
			r.woken++
			r.wake.Signal()
		case r.workers < r.limit:
			r.workers++
			r.workerGroup.Go(r.worker)
		default:
			return
		}
	}
}

// takeLocked takes a free lane, or leave to make one, which is a lane without a
// stream.
func (r *Ring) acquirePipelineLocked() *pipeline {
	if n := len(r.free); n > 0 {
		l := r.free[n-1]
		r.free = r.free[:n-1]
		return l
	}
	if r.pipelines < r.limit {
		r.pipelines++
		return &pipeline{r: r}
	}
	return nil
}

// giveLocked takes a lane back, and sees to it that work which is left finds a
// hand: not a last piece that its own caller is about to take.
func (r *Ring) releasePipelineLocked(l *pipeline) {
	r.free = append(r.free, l)
	spare := r.spareWorkersLocked() > 0
	for _, o := range r.active {
		if !o.hasCaller || spare && o.left > r.chunkSizeLocked(o) {
			r.wakeWorkersLocked(1)
			return
		}
	}
}

// ready makes a lane usable. Where that fails the ring goes on with the lanes
// it has: the first was made by New.
func (r *Ring) ensurePipeline(l *pipeline) *pipeline {
	if l == nil || l.stream != nil {
		return l
	}
	made, err := r.newPipeline()
	if err == nil {
		return made
	}
	r.log.Warn("ring: going on with fewer lanes", "error", err)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pipelines--
	r.limit = min(r.limit, r.pipelines)
	return nil
}

// nextLocked takes the next piece into s and reports whether there was one; for
// a caller only as long as its own op has work left.
func (r *Ring) nextChunkLocked(s *slot, own *batch) bool {
	for own == nil || own.left > 0 {
		o := r.pickBatchLocked(own)
		if o == nil {
			return false
		}
		if err := o.ctx.Err(); err != nil {
			r.cancelLocked(o, err)
			continue
		}
		o.take(s, r.chunkSizeLocked(o))
		r.deactivateLocked(o)
		return true
	}
	return false
}

// pickLocked chooses the op that had the least. A caller at work prefers its
// own unless another is behind by more than some slots.
func (r *Ring) pickBatchLocked(own *batch) *batch {
	var least *batch
	for _, o := range r.active {
		if least == nil || o.share < least.share {
			least = o
		}
	}
	if own != nil && own.left > 0 && own.share <= least.share+2*r.sizing.slot {
		return own
	}
	return least
}

// dropIdleLocked takes an op without work left from the list.
func (r *Ring) deactivateLocked(o *batch) {
	if o.left > 0 {
		return
	}
	for i, a := range r.active {
		if a == o {
			last := len(r.active) - 1
			r.active[i] = r.active[last]
			r.active[last] = nil
			r.active = r.active[:last]
			return
		}
	}
}

// cancelLocked leaves what was not taken yet of an op undone.
func (r *Ring) cancelLocked(o *batch, cause error) {
	o.cancel(cause)
	r.deactivateLocked(o)
	r.wakeLocked(o)
}

// wakeLocked tells a caller who waits that its op is finished, once.
func (r *Ring) wakeLocked(o *batch) {
	if o.waiting && o.finished() {
		o.waiting = false
		o.done <- struct{}{}
	}
}

// complete accounts for a piece.
func (r *Ring) complete(s *slot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := s.op
	o.busy--
	for i := range s.segments {
		o.account(&s.segments[i])
	}
	r.deactivateLocked(o)
	r.wakeLocked(o)
}

// drive works on pieces until there is none: for a caller, none of its own op.
func (r *Ring) drive(l *pipeline, own *batch) {
	for {
		if len(l.idle) == 0 {
			l.finish()
		}
		s := l.idle[0]
		r.mu.Lock()
		ok := r.nextChunkLocked(s, own)
		r.mu.Unlock()
		if !ok {
			break
		}
		l.idle = append(l.idle[:0], l.idle[1:]...)
		l.start(s)
		// One copy ahead is enough for writes: the file is the slower side.
		for s.write && len(l.inFlight) > 1 {
			l.finish()
		}
		l.reap()
	}
	for len(l.inFlight) > 0 {
		l.finish()
	}
}

// help is a helper: a goroutine with a thread of its own, on which the GPU's
// context is current.
func (r *Ring) worker() {
	unbind, err := r.dev.Bind()
	if err != nil {
		r.log.Warn("ring: bind a helper's thread", "error", err)
	} else {
		defer unbind()
	}
	if r.pool.near != nil {
		// The thread is not to be used for anything else afterwards: it ends
		// with the goroutine, which is locked once more than it is unlocked.
		runtime.LockOSThread()
		if err := unix.SchedSetaffinity(0, r.pool.near); err != nil {
			r.log.Debug("ring: helper not beside the GPU", "error", err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		for !r.stopped && !r.workerNeededLocked() {
			r.asleep++
			r.wake.Wait()
			r.asleep--
			r.woken = max(r.woken-1, 0)
		}
		if r.stopped {
			return
		}
		l := r.acquirePipelineLocked()
		r.mu.Unlock()
		if l = r.ensurePipeline(l); l != nil {
			r.drive(l, nil)
		}
		r.mu.Lock()
		if l != nil {
			r.releasePipelineLocked(l)
		}
	}
}
