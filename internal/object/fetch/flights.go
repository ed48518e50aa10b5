package fetch

import (
	"context"
	"slices"
	"sync"
	"time"
)

// flights limits the requests in flight. The limit is halved when the store says that
// it has too much to do, and grows by one for each round of answers, up to most.
type flights struct {
	mu      sync.Mutex
	limit   float64
	most    float64
	n       int
	pause   time.Time // nobody starts before
	waiting []chan struct{}
}

// acquire waits for room, and for the end of a pause.
func (f *flights) acquire(ctx context.Context) error {
	for {
		f.mu.Lock()
		wait := time.Until(f.pause)
		if wait <= 0 && f.n < f.roomLocked() {
			f.n++
			f.mu.Unlock()
			return nil
		}
		if wait > 0 {
			f.mu.Unlock()
			if err := sleep(ctx, wait); err != nil {
				f.leave(nil)
				return err
			}
			continue
		}
		ready := make(chan struct{})
		f.waiting = append(f.waiting, ready)
		f.mu.Unlock()
		select {
		case <-ready:
		case <-ctx.Done():
			f.leave(ready)
			return context.Cause(ctx)
		}
	}
}

// leave ends the waiting of a request that is given up. If it was woken already, the place
// was meant for it, and another is woken instead.
func (f *flights) leave(ready chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting = slices.DeleteFunc(f.waiting, func(c chan struct{}) bool { return c == ready })
	f.wakeLocked()
}

// try is acquire for a request that need not be made.
func (f *flights) try() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.n >= f.roomLocked() || time.Now().Before(f.pause) {
		return false
	}
	f.n++
	return true
}

func (f *flights) roomLocked() int { return max(int(f.limit), 1) }

// release ends a request.
func (f *flights) release(ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n--
	if ok {
		f.limit = min(f.limit+1/max(f.limit, 1), f.most)
	}
	f.wakeLocked()
}

// wakeLocked wakes those that may find room; each looks for itself.
func (f *flights) wakeLocked() {
	for room := f.roomLocked() - f.n; room > 0 && len(f.waiting) > 0; room-- {
		close(f.waiting[0])
		f.waiting = f.waiting[1:]
	}
}

// slowDown halves the limit and lets nobody start before a time. Answers to requests
// that were in flight together count once.
func (f *flights) slowDown(until time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Now().After(f.pause) {
		f.limit = max(min(f.limit, float64(f.n+1))/2, 1)
	}
	if until.After(f.pause) {
		f.pause = until
	}
}
