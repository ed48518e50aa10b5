// Package limit limits how many bytes a second transfers move.
package limit

import (
	"context"
	"sync"
	"time"
)

// A Rate is shared by all transfers that it limits together. A nil Rate limits nothing.
//
// Each request gets the next free span of time, as long as its bytes need at the rate,
// and waits for the beginning of its span. Unused time is lost: a pause is
// not followed by a burst.
type Rate struct {
	perSecond int64
	clock     Clock

	mu   sync.Mutex
	free time.Time // when the last span ends
}

// A Clock is what time it is, and how to wait.
type Clock struct {
	Now   func() time.Time
	Sleep func(ctx context.Context, d time.Duration) error // returns early when ctx ends
}

// New returns a rate in bytes per second; 0 means none, and returns nil.
func New(perSecond int64) *Rate {
	return NewAt(perSecond, Clock{time.Now, Sleep})
}

// NewAt does the same by another clock, for tests.
func NewAt(perSecond int64, c Clock) *Rate {
	if perSecond <= 0 {
		return nil
	}
	return &Rate{perSecond: perSecond, clock: c}
}

// Sleep returns after d, or when ctx ends, with its cause.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Wait returns when n bytes may be moved.
func (r *Rate) Wait(ctx context.Context, n int64) error {
	if r == nil {
		return nil
	}
	if d := r.reserve(n); d > 0 {
		return r.clock.Sleep(ctx, d)
	}
	return nil
}

// longest is 100 years, which a time.Duration can hold.
const longest = float64(100 * 365 * 24 * time.Hour)

// reserve takes the next span for n bytes, and returns the time until it begins.
func (r *Rate) reserve(n int64) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	if r.free.Before(now) {
		r.free = now
	}
	wait := r.free.Sub(now)
	span := float64(n) / float64(r.perSecond) * float64(time.Second)
	r.free = r.free.Add(time.Duration(min(span, longest)))
	return wait
}

// Largest returns the size of requests that move n bytes: not more than an eighth of a
// second has, so that the rate is even and a transfer stops soon, but at least unit and
// a multiple of it.
func (r *Rate) Largest(n, unit int64) int64 {
	if r == nil {
		return n
	}
	return min(n, max(r.perSecond/8/unit*unit, unit))
}
