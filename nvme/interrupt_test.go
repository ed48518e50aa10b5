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
	run := func(cfg nvme.Config, deaf bool) time.Duration {
		asked = 0
		r := newRig(t, cfg, func(tr nvme.Transport) nvme.Transport { return listener{tr, deaf, &asked} })
		one := r.reads(1)
		start := time.Now()
		for range 40 {
			r.submit(one)
			r.check(r.q.Wait(r.ctx, one[0]))
		}
		return time.Since(start)
	}
	with := run(nvme.Config{}, false)
	if asked == 0 {
		t.Error("the driver did not ask for interrupts")
	}
	if without := run(nvme.Config{}, true); without < 2*with {
		t.Errorf("40 commands take %v with interrupts, and %v when none come", with, without)
	}
	run(nvme.Config{Poll: true}, true)
	if asked != 0 {
		t.Error("the driver asked for interrupts that were not wanted")
	}
}
