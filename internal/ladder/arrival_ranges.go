package ladder

import (
	"context"
	"slices"
	"sync"
)

// A rangeLock has writes to one range of a source wait for each other. Of two at a time
// each would find the other's bytes and take them for a lie, and a required one would
// put back what was there before both. A write in a stream waits only for others in
// streams: one that is not may wait for all streams.
type rangeLock struct {
	mu   sync.Mutex
	held []*heldRanges
	pool sync.Pool // of *heldRanges
}

// heldRanges are what a group of writes has locked, or will lock.
type heldRanges struct {
	ranges   []fileRange
	inStream bool
	done     chan struct{} // closed in the end; nil if nothing waits
}

type fileRange struct {
	id       string
	from, to int64
}

func (a *fileRange) overlaps(b *fileRange) bool {
	return a.from < b.to && b.from < a.to && a.id == b.id
}

// get returns ranges to fill. unlock takes them back.
func (l *rangeLock) get() *heldRanges {
	if h, ok := l.pool.Get().(*heldRanges); ok {
		return h
	}
	return new(heldRanges)
}

// lock waits until no write in flight has a byte in common with the ranges.
func (l *rangeLock) lock(ctx context.Context, h *heldRanges) error {
	for {
		other := l.tryLock(h)
		if other == nil {
			return nil
		}
		select {
		case <-other:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tryLock locks the ranges, or returns what is closed when one of them is free.
func (l *rangeLock) tryLock(h *heldRanges) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range l.held {
		if h.inStream && !o.inStream {
			continue
		}
		for i := range h.ranges {
			if overlapsAny(o.ranges, &h.ranges[i]) {
				if o.done == nil {
					o.done = make(chan struct{})
				}
				return o.done
			}
		}
	}
	l.held = append(l.held, h)
	return nil
}

func (l *rangeLock) unlock(h *heldRanges) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = slices.DeleteFunc(l.held, func(o *heldRanges) bool { return o == h })
	if h.done != nil {
		close(h.done)
		h.done = nil
	}
	clear(h.ranges)
	h.ranges = h.ranges[:0]
	l.pool.Put(h)
}

func overlapsAny(ranges []fileRange, r *fileRange) bool {
	for i := range ranges {
		if ranges[i].overlaps(r) {
			return true
		}
	}
	return false
}
