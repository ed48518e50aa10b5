package ring

import (
	"math"
	"runtime"

	"golang.org/x/sys/unix"
)

const (
	// minPiece is worth calling a helper in; busyPiece is the smallest when most
	// lanes are taken, because many launches then only lengthen the queue.
	minPiece    = 256 << 10
	busyPiece   = 2 << 20
	gatherPiece = 128 << 10
)

// startLocked makes the op's work known and calls helpers in. It returns a lane
// for the caller to work with, if there is a free one.
func (r *Ring) startLocked(o *op) *lane {
	if len(r.active) > 0 {
		o.share = math.MaxInt64
		for _, other := range r.active {
			o.share = min(o.share, other.share)
		}
	}
	r.active = append(r.active, o)
	l := r.takeLocked()
	o.attended = l != nil
	r.callLocked(r.helpLocked(o))
	return l
}

// Of those who write through the page cache a file lets in one at a time: while
// one writes two copy from the GPU, and more would only spin. Stores into pages
// have no such lock, but eight fill the memory.
const (
	pwriteHands = 3
	storeHands  = 8
)

// helpLocked is how many helpers to call for an op that begins.
func (r *Ring) helpLocked(o *op) int {
	n := int(min((o.left-1)/r.pieceLocked(o), int64(r.spareLocked())))
	switch q := &o.reqs[o.next]; {
	case !q.Write || q.Direct >= 0:
		return n
	case o.prog[o.next].over.mem != nil:
		return min(n, storeHands-1)
	case len(r.active) > 1: // perhaps on the same file
		return 0
	}
	return min(n, pwriteHands-1)
}

// pieceLocked is how large the next piece of an op should be: what is left,
// shared among the lanes that work on it and those that could.
func (r *Ring) pieceLocked(o *op) int64 {
	if o.whole {
		return r.plan.slot
	}
	spare := r.spareLocked()
	least := int64(busyPiece)
	if 2*spare > r.handsLocked() {
		least = minPiece
	}
	if o.gathers(o.next) {
		least = gatherPiece
	}
	sharers := int64(spare + min(o.busy+1, r.limit))
	return min(max(o.left/sharers, min(least, r.plan.slot)), r.plan.slot)
}

// callLocked wakes n helpers, or makes them.
func (r *Ring) callLocked(n int) {
	for ; n > 0; n-- {
		switch {
		case r.asleep > r.called:
			r.called++
			r.work.Signal()
		case r.helpers < r.limit:
			r.helpers++
			r.helping.Go(r.help)
		default:
			return
		}
	}
}

// takeLocked takes a free lane, or leave to make one, which is a lane without a
// stream.
func (r *Ring) takeLocked() *lane {
	if n := len(r.free); n > 0 {
		l := r.free[n-1]
		r.free = r.free[:n-1]
		return l
	}
	if r.lanes < r.limit {
		r.lanes++
		return &lane{r: r}
	}
	return nil
}

// giveLocked takes a lane back, and sees to it that work which is left finds a
// hand: not a last piece that its own caller is about to take.
func (r *Ring) giveLocked(l *lane) {
	r.free = append(r.free, l)
	spare := r.spareLocked() > 0
	for _, o := range r.active {
		if !o.attended || spare && o.left > r.pieceLocked(o) {
			r.callLocked(1)
			return
		}
	}
}

// ready makes a lane usable. Where that fails the ring goes on with the lanes
// it has: the first was made by New.
func (r *Ring) ready(l *lane) *lane {
	if l == nil || l.stream != nil {
		return l
	}
	made, err := r.newLane()
	if err == nil {
		return made
	}
	r.log.Warn("ring: going on with fewer lanes", "error", err)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lanes--
	r.limit = min(r.limit, r.lanes)
	return nil
}

// nextLocked takes the next piece into s and reports whether there was one; for
// a caller only as long as its own op has work left.
func (r *Ring) nextLocked(s *slot, own *op) bool {
	for own == nil || own.left > 0 {
		o := r.pickLocked(own)
		if o == nil {
			return false
		}
		if err := o.ctx.Err(); err != nil {
			r.cancelLocked(o, err)
			continue
		}
		o.take(s, r.pieceLocked(o))
		r.dropIdleLocked(o)
		return true
	}
	return false
}

// pickLocked chooses the op that had the least. A caller at work prefers its
// own unless another is behind by more than some slots.
func (r *Ring) pickLocked(own *op) *op {
	var least *op
	for _, o := range r.active {
		if least == nil || o.share < least.share {
			least = o
		}
	}
	if own != nil && own.left > 0 && own.share <= least.share+2*r.plan.slot {
		return own
	}
	return least
}

// dropIdleLocked takes an op without work left from the list.
func (r *Ring) dropIdleLocked(o *op) {
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
func (r *Ring) cancelLocked(o *op, cause error) {
	o.cancel(cause)
	r.dropIdleLocked(o)
	r.wakeLocked(o)
}

// wakeLocked tells a caller who waits that its op is finished, once.
func (r *Ring) wakeLocked(o *op) {
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
	for i := range s.parts {
		o.account(&s.parts[i])
	}
	r.dropIdleLocked(o)
	r.wakeLocked(o)
}

// drive works on pieces until there is none: for a caller, none of its own op.
func (r *Ring) drive(l *lane, own *op) {
	for {
		if len(l.idle) == 0 {
			l.finish()
		}
		s := l.idle[0]
		r.mu.Lock()
		ok := r.nextLocked(s, own)
		r.mu.Unlock()
		if !ok {
			break
		}
		l.idle = append(l.idle[:0], l.idle[1:]...)
		l.start(s)
		// One copy ahead is enough for writes: the file is the slower side.
		for s.write && len(l.flying) > 1 {
			l.finish()
		}
		l.reap()
	}
	for len(l.flying) > 0 {
		l.finish()
	}
}

// help is a helper: a goroutine with a thread of its own, on which the GPU's
// context is current.
func (r *Ring) help() {
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
		for !r.ended && !r.wantedLocked() {
			r.asleep++
			r.work.Wait()
			r.asleep--
			r.called = max(r.called-1, 0)
		}
		if r.ended {
			return
		}
		l := r.takeLocked()
		r.mu.Unlock()
		if l = r.ready(l); l != nil {
			r.drive(l, nil)
		}
		r.mu.Lock()
		if l != nil {
			r.giveLocked(l)
		}
	}
}
