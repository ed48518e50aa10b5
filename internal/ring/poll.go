package ring

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/internal/uring"
)

// A poller waits for completions without giving up the processor, for requests up to a
// size that the program has set. A thread that sleeps needs some microseconds to be woken,
// which is much of a small request and nothing of a large one.
//
// What is polled: the copy of a small read by its completion flag, and its read with
// O_DIRECT, in the completion ring of io_uring; copies of larger requests by their
// events. What goes through the page cache completes in the system call, and the driver's
// wait for the copy of a small write polls by itself.
type poller struct {
	upTo  atomic.Int64 // Config.Poll; 0: each wait is the faster one
	off   atomic.Bool  // there is no io_uring
	polls pollCounts
}

// pollCounts are how many completions were polled for, and how many of them took so long
// that the thread slept after all.
type pollCounts struct{ flags, reads, events, slept atomic.Int64 }

// pollFor is how long a completion is polled for. Fast drives answer within 100 us; a core
// that spins for a slow one could have done something else.
const pollFor = 200 * time.Microsecond

// covers reports whether the completions of a request of n bytes are polled for.
func (p *poller) covers(n int64) bool { return n <= p.upTo.Load() }

// spin polls until done reports true, and reports whether that was in time.
func (p *poller) spin(kind *atomic.Int64, done func() bool) bool {
	kind.Add(1)
	for end := time.Now().Add(pollFor); ; {
		for range 64 { // the clock takes as long as a few polls
			if done() {
				return true
			}
		}
		if time.Now().After(end) {
			p.polls.slept.Add(1)
			return false
		}
	}
}

// read reads the aligned range around a segment with O_DIRECT, if that is how it is to be
// read. fileIO.read reads what is missing afterwards.
func (p *poller) read(files *fileIO, q *Request, s *smallSlot, mem []byte) {
	seg := &s.segment
	if !q.asks() || !p.covers(q.Len) {
		return
	}
	if files.choose(q, seg); seg.path != storage.Around || !p.open(s) {
		return
	}
	from, to, pos := seg.around(q, len(mem))
	// The kernel completes reads on the thread that submitted them.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var done [1]uring.Done
	if s.uring.Read(q.Direct, mem[from:to], pos, 0) != nil || p.submit(s.uring) != nil {
		p.off.Store(true) // closing it waits for the read
		_ = s.uring.Close()
		s.uring = nil
		return
	}
	if s.uring.Reap(done[:]) == 1 && done[0].Res > 0 {
		seg.readAround(q, len(mem), int64(done[0].Res))
	}
}

// open makes the io_uring of a slot when it is first needed.
func (p *poller) open(s *smallSlot) bool {
	if s.uring != nil || p.off.Load() {
		return s.uring != nil
	}
	u, err := uring.NewPolled(1)
	if err != nil {
		p.off.Store(true)
		return false
	}
	s.uring = u
	return true
}

// submit submits a read and polls for its completion.
func (p *poller) submit(u *uring.Ring) error {
	if err := u.Submit(0); err != nil {
		return err
	}
	if p.spin(&p.polls.reads, func() bool { return u.Ready() > 0 }) {
		return nil
	}
	return u.Submit(1)
}

// wait polls for the copies of a chunk. It reports false if they are still in flight.
func (p *poller) wait(s *slot) (done bool, err error) {
	if !p.covers(s.batch.reqs[s.segments[0].req].Len) {
		return false, nil
	}
	done = p.spin(&p.polls.events, func() bool {
		done, err = s.copied.Done()
		return done || err != nil
	})
	return done, err
}
