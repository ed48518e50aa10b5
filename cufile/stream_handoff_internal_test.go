package cufile

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func work(f func()) *func() { return &f }

// Work that comes while a goroutine lingers runs there; all work runs once.
func TestHandoff(t *testing.T) {
	h := &handoff{linger: time.Hour}
	ran := make(chan string)
	h.run(work(func() { ran <- "first" }))
	<-ran
	for h.next.Load() != &lingering {
		time.Sleep(0)
	}
	h.run(work(func() {
		if h.next.Load() != nil {
			t.Error("the goroutine that lingers did not take the work")
		}
		ran <- "second"
	}))
	if got := <-ran; got != "second" {
		t.Error(got)
	}
	for h.next.Load() != &lingering {
		time.Sleep(0)
	}
	// A second goroutine does not linger, and the first has an end.
	if h.wait() != nil {
		t.Error("two goroutines linger")
	}
	if !h.next.CompareAndSwap(&lingering, work(func() { h.linger = 0 })) {
		t.Error("nobody lingers")
	}
}

func TestHandoffRunsAllOnce(t *testing.T) {
	for _, linger := range []time.Duration{0, time.Microsecond, 50 * time.Microsecond} {
		h := &handoff{linger: linger}
		var runs [200]atomic.Int32
		var wg sync.WaitGroup
		for i := range runs {
			wg.Add(1)
			h.run(work(func() {
				runs[i].Add(1)
				wg.Done()
			}))
			if i%3 == 0 {
				wg.Wait()
			}
		}
		wg.Wait()
		for i := range runs {
			if n := runs[i].Load(); n != 1 {
				t.Errorf("lingering %v: %d ran %d times", linger, i, n)
			}
		}
	}
}
