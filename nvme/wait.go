package nvme

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	abi "github.com/culvert-io/culvert/internal/abi/nvme"
)

// Wait waits until a submitted request is done and returns its error. If ctx
// ends first, Wait aborts the command, but still waits: until the request is
// done, its memory belongs to the controller. The error of a command aborted for
// ctx wraps ctx's error.
func (q *Queue) Wait(ctx context.Context, r *Request) error { return q.wait(ctx, r, false) }

// wait is Wait. held means that the caller holds Controller.resetting.
//
// One of the goroutines that wait for a queue has its token: it polls for all of
// them and notifies the others.
func (q *Queue) wait(ctx context.Context, r *Request, held bool) error {
	if r.q != q {
		return r.fail(q.c, fmt.Errorf("wait: not submitted to queue %d", q.id))
	}
	r.waiting.Store(true)
	defer r.waiting.Store(false)
	cancelled := ctx.Done()
	for r.state.Load() == inFlight {
		t := q.block(cancelled, r.notify, func() bool { q.poll(nil); return r.state.Load() != inFlight })
		if ctx.Err() != nil && cancelled != nil {
			cancelled = nil
			q.abort(r)
		}
		q.c.handle(q, t, held)
	}
	q.claim(r)
	if err := ctx.Err(); err != nil && errors.Is(r.err, StatusAborted) {
		return fmt.Errorf("%w: %w", err, r.err)
	}
	return r.err
}

// claim delivers a completed request, unless Poll or Reap has.
func (q *Queue) claim(r *Request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if r.state.Load() == done {
		q.deliver(r)
	}
}

// Reap waits until at least one request is done or ctx ends, stores completed
// requests in done and returns their number. It fails with ErrIdle if no request
// is in flight.
func (q *Queue) Reap(ctx context.Context, done []*Request) (n int, err error) {
	q.reapers.Add(1)
	defer q.reapers.Add(-1)
	for {
		if n = q.Poll(done); n > 0 {
			return n, nil
		}
		if len(done) == 0 || q.isIdle() {
			return 0, ErrIdle
		}
		q.c.handle(q, q.block(ctx.Done(), q.answered, func() bool { n = q.poll(done); return n > 0 }), false)
		if n > 0 {
			return n, nil
		}
		if err := ctx.Err(); err != nil {
			return 0, err
		}
	}
}

// isIdle reports whether nothing is in flight or undelivered.
func (q *Queue) isIdle() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.free) == q.depth && q.ready.first == nil
}

// block waits until called or cancelled receives. If no other goroutine polls the
// queue, it polls until poll returns true or there is a problem. The caller
// handles the problem without the token: that may take long, or wait for a
// goroutine that needs the token.
func (q *Queue) block(cancelled, called <-chan struct{}, poll func() (enough bool)) problem {
	select {
	case <-called:
	case <-cancelled:
	case <-q.token:
		defer func() { q.token <- struct{}{} }()
		return q.pollUntil(cancelled, called, poll)
	}
	return problem{}
}

// pollUntil polls until poll returns true, called or cancelled receives, or there
// is a problem. The caller has the token.
func (q *Queue) pollUntil(cancelled, called <-chan struct{}, poll func() (enough bool)) problem {
	for spins := 0; ; spins++ {
		if poll() {
			return problem{}
		}
		if q.irq == nil && spins < 100 {
			runtime.Gosched()
			continue
		}
		pause := q.c.healthInterval()
		if q.irq == nil {
			pause = min(pause, time.Duration(spins)*time.Microsecond)
		}
		q.timer.Reset(pause)
		select {
		case <-q.irq:
		case <-q.timer.C:
			if t := q.checkHealthIfDue(); t.kind != noProblem {
				return t
			}
		case <-called:
			return problem{}
		case <-cancelled:
			return problem{}
		}
	}
}

// checkHealthIfDue is checkHealth, unless the last one was a moment ago.
func (q *Queue) checkHealthIfDue() problem {
	q.mu.Lock()
	due := q.c.now() >= q.checkedAt+q.c.healthInterval()
	q.mu.Unlock()
	if !due {
		return problem{}
	}
	return q.checkHealth()
}

// A problem keeps commands from completing.
type problem struct {
	kind  problemKind
	cause error  // of a reset
	gen   uint64 // Controller.gen when it was found
	cid   uint16 // of the command to abort
}

type problemKind uint8

const (
	noProblem problemKind = iota
	overdue               // a command must be aborted
	broken                // the controller must be reset
)

// checkHealth checks the controller's status and the deadlines of commands.
func (q *Queue) checkHealth() problem {
	now := q.c.now()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.checkedAt = now
	if q.stopped || len(q.free) == q.depth {
		return problem{} // the registers may be unmapped
	}
	t := problem{kind: broken, gen: q.gen}
	switch csts := q.c.t.Load32(abi.REG_CSTS); {
	case csts == abi.GONE:
		t.cause = ErrRemoved
		return t
	case csts&abi.CSTS_CFS != 0:
		t.cause = ErrFatal
		return t
	}
	for i := range q.slots {
		s := &q.slots[i]
		switch {
		case s.r == nil || now < s.deadline:
		case s.aborted || q.id == 0:
			t.cause = ErrTimeout
			return t
		default:
			s.aborted = true
			s.deadline = now + q.c.cfg.Timeout
			return problem{kind: overdue, cid: s.cid}
		}
	}
	return problem{}
}

// abort sends an Abort for a request.
func (q *Queue) abort(r *Request) {
	q.mu.Lock()
	abortable := r.state.Load() == inFlight && q.id != 0
	cid := r.cid
	q.mu.Unlock()
	if abortable {
		q.c.abortCommand(q.id, cid)
	}
}
