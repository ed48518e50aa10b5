package cufile

import (
	"runtime"
	"sync/atomic"
	"time"
)

const (
	// linger is how long a goroutine that has ended a transfer looks for the next one. A
	// program that enqueues, waits and enqueues again then need not wake a thread in the
	// call, which takes 2 to 4 us of it on an H200.
	linger = 30 * time.Microsecond
	// lingerCores is the number of cores from which on one may be kept busy for that.
	lingerCores = 4
)

// A handoff runs transfers of idle streams on goroutines, of which one lingers.
type handoff struct {
	linger time.Duration // 0 on few cores
	// next is nil if no goroutine lingers, &lingering if one does, and else its work.
	next atomic.Pointer[func()]
}

var lingering = func() {}

func (h *handoff) init() {
	if runtime.GOMAXPROCS(0) >= lingerCores {
		h.linger = linger
	}
}

// run starts *f, which must not change before it has begun.
func (h *handoff) run(f *func()) {
	if !h.next.CompareAndSwap(&lingering, f) {
		go h.work(f)
	}
}

func (h *handoff) work(f *func()) {
	for f != nil {
		(*f)()
		f = h.wait()
	}
}

// wait returns the next work, or nil if none comes in time or another goroutine lingers.
func (h *handoff) wait() *func() {
	if h.linger == 0 || !h.next.CompareAndSwap(nil, &lingering) {
		return nil
	}
	for end := time.Now().Add(h.linger); h.next.Load() == &lingering && time.Now().Before(end); {
	}
	if h.next.CompareAndSwap(&lingering, nil) {
		return nil
	}
	return h.next.Swap(nil)
}
