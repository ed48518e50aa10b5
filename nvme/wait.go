package nvme

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	abi "github.com/culvert-io/culvert/internal/abi/nvme"
)

// Wait returns when a submitted request is done, with its error. When ctx ends
// first the command is aborted, and Wait returns when it is answered all the
// same: until then its memory is the controller's. The error of a command that
// was given up for ctx is ctx's too.
func (q *Queue) Wait(ctx context.Context, r *Request) error { return q.wait(ctx, r, false) }

// wait is Wait. held says that the caller holds Controller.resetting.
//
// Of all who wait for a queue one holds its token and looks for completions,
// his own and the others'; they are told.
func (q *Queue) wait(ctx context.Context, r *Request, held bool) error {
	if r.q != q {
		return r.fail(q.c, fmt.Errorf("wait: it was not submitted to queue %d", q.id))
	}
	r.waiting.Store(true)
	defer r.waiting.Store(false)
	cancelled := ctx.Done()
	for r.state.Load() == inFlight {
		t := trouble{}
		select {
		case <-r.told:
			continue
		case <-q.token:
			t = q.lead(cancelled, r.told, func() bool { q.poll(nil); return r.state.Load() != inFlight })
			q.token <- struct{}{}
		case <-cancelled:
		}
		if ctx.Err() != nil && cancelled != nil {
			cancelled = nil
			q.abort(r)
		}
		// Without the token: what follows may take long, or wait for somebody
		// who wants it.
		q.c.handle(q, t, held)
	}
	q.claim(r)
	if err := ctx.Err(); err != nil && errors.Is(r.err, StatusAborted) {
		return fmt.Errorf("%w: %w", err, r.err)
	}
	return r.err
}

// claim takes an answered request out of the list of those.
func (q *Queue) claim(r *Request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if r.state.Load() == done {
		q.hand(r)
	}
}

// Reap waits until at least one request is answered, or ctx ends, puts answered
// ones into done and returns how many. When there is none to wait for it fails
// with ErrIdle.
func (q *Queue) Reap(ctx context.Context, done []*Request) (n int, err error) {
	q.reapers.Add(1)
	defer q.reapers.Add(-1)
	for {
		if n = q.Poll(done); n > 0 {
			return n, nil
		}
		if len(done) == 0 || q.quiet() {
			return 0, ErrIdle
		}
		select {
		case <-q.answered:
		case <-q.token:
			t := q.lead(ctx.Done(), q.answered, func() bool { n = q.poll(done); return n > 0 })
			q.token <- struct{}{}
			q.c.handle(q, t, false)
		case <-ctx.Done():
		}
		if n > 0 {
			return n, nil
		}
		if err := ctx.Err(); err != nil {
			return 0, err
		}
	}
}

// quiet reports whether there is nothing to wait for.
func (q *Queue) quiet() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.free) == q.depth && q.ready.first == nil
}

// lead polls until that gave enough, or somebody calls, or there is trouble.
// The caller holds the token.
func (q *Queue) lead(cancelled, called <-chan struct{}, poll func() (enough bool)) trouble {
	for spins := 0; ; spins++ {
		if poll() {
			return trouble{}
		}
		if q.irq == nil && spins < 100 {
			runtime.Gosched()
			continue
		}
		pause := q.c.lookEvery()
		if q.irq == nil {
			pause = min(pause, time.Duration(spins)*time.Microsecond)
		}
		q.timer.Reset(pause)
		select {
		case <-q.irq:
		case <-q.timer.C:
			if t := q.lookSometimes(); t.kind != noTrouble {
				return t
			}
		case <-called:
			return trouble{}
		case <-cancelled:
			return trouble{}
		}
	}
}

// lookSometimes is look, unless it was called a moment ago.
func (q *Queue) lookSometimes() trouble {
	q.mu.Lock()
	due := q.c.now() >= q.looked+q.c.lookEvery()
	q.mu.Unlock()
	if !due {
		return trouble{}
	}
	return q.look()
}

// A trouble is what keeps commands from being answered.
type trouble struct {
	kind  troubleKind
	cause error  // of a reset
	gen   uint64 // of the controller that has it
	cid   uint16 // of a command to be aborted
}

type troubleKind uint8

const (
	noTrouble troubleKind = iota
	late                  // a command is overdue
	broken                // only a reset helps
)

// look looks at the controller's health and at the clock.
func (q *Queue) look() trouble {
	now := q.c.now()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.looked = now
	if q.stopped || len(q.free) == q.depth {
		return trouble{} // there may be no registers any more
	}
	t := trouble{kind: broken, gen: q.gen}
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
			return trouble{kind: late, cid: s.cid}
		}
	}
	return trouble{}
}

// abort asks the controller to give a request up.
func (q *Queue) abort(r *Request) {
	q.mu.Lock()
	flying := r.state.Load() == inFlight && q.id != 0
	cid := r.cid
	q.mu.Unlock()
	if flying {
		q.c.abortCommand(q.id, cid)
	}
}
