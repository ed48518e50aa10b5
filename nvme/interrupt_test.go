package nvme_test

import (
	"testing"
	"time"

	"github.com/culvert-io/culvert/nvme"
)

// A listener is a transport that sees who asks for interrupts. A deaf one hands
// out some that never come.
type listener struct {
	nvme.Transport
	deaf  bool
	asked *int
}

func (l listener) Interrupt(vector int) (<-chan struct{}, error) {
	*l.asked++
	if l.deaf {
		return make(chan struct{}), nil
	}
	return l.Transport.Interrupt(vector)
}

// TestInterrupts waits for one command after the other. With interrupts that is
// quick; without those that were promised the driver finds completions when it
// looks after the controller's health, and loses nothing but time.
func TestInterrupts(t *testing.T) {
	asked := 0
	open := func(cfg nvme.Config, deaf bool) *fixture {
		asked = 0
		return newFixture(t, cfg, func(tr nvme.Transport) nvme.Transport { return listener{tr, deaf, &asked} })
	}
	// each is how long a command takes on the average of n.
	each := func(r *fixture, n int) time.Duration {
		one := r.reads(1)
		start := time.Now()
		for range n {
			r.submit(one)
			r.check(r.q.Wait(r.ctx, one[0]))
		}
		return time.Since(start) / time.Duration(n)
	}
	deaf := each(open(nvme.Config{}, true), 40)
	r := open(nvme.Config{}, false)
	if asked == 0 {
		t.Error("the driver did not ask for interrupts")
	}
	// On a busy machine some are waited for as long as if there were none.
	best := each(r, 8)
	for i := 0; i < 100 && 2*best > deaf; i++ {
		best = min(best, each(r, 8))
	}
	if 2*best > deaf {
		t.Errorf("a command takes %v with interrupts, and %v when none come", best, deaf)
	}
	each(open(nvme.Config{Poll: true}, true), 40)
	if asked != 0 {
		t.Error("the driver asked for interrupts that were not wanted")
	}
}
