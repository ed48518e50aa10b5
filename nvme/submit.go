package nvme

import (
	"context"
	"fmt"
	"time"
)

// Submit starts the requests, in order, and writes the doorbell once. It returns
// the number started. If that is not all, the error is ErrFull if the queue is
// full, or tells what is wrong with the next request. It waits during a reset of
// the controller.
func (q *Queue) Submit(rs ...*Request) (n int, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.stopped && q.dead == nil {
		q.resumed.Wait()
	}
	if q.dead != nil {
		return 0, fmt.Errorf("nvme %s: queue %d: %w", q.c.Name(), q.id, q.dead)
	}
	now := q.c.now()
	for _, r := range rs {
		if err = q.put(r, now); err != nil {
			break
		}
		n++
	}
	if n > 0 {
		q.c.t.Store32(q.sqdb, q.tail)
	}
	return n, err
}

// put writes a request's command to the submission queue. The caller holds mu.
func (q *Queue) put(r *Request, now time.Duration) error {
	if len(q.free) == 0 || (q.tail+1)%q.n == q.head {
		return ErrFull
	}
	switch state := r.state.Load(); {
	case state == inFlight:
		return r.fail(q.c, ErrBusy)
	case state == done && r.q != q:
		return r.fail(q.c, fmt.Errorf("completed on another queue, not yet collected: %w", ErrBusy))
	case state == done:
		q.ready.remove(r)
		r.state.Store(taken)
	}
	if err := r.check(q.c); err != nil {
		return r.fail(q.c, err)
	}
	i := q.free[len(q.free)-1]
	q.free = q.free[:len(q.free)-1]
	s := &q.slots[i]
	r.start(q, s.cid)
	s.r, s.pos, s.aborted = r, q.tail, false
	s.deadline = now + q.c.cfg.Timeout
	cmd := &q.sq[q.tail]
	r.encode(cmd, q.slotLists(int(i)))
	cmd.CID = s.cid
	q.tail = (q.tail + 1) % q.n
	return nil
}

// submit is Submit of one request, but waits while the queue is full.
func (q *Queue) submit(ctx context.Context, r *Request) error {
	n, err := q.Submit(r)
	if n == 1 || err != ErrFull {
		return err
	}
	q.roomWaiters.Add(1)
	defer q.roomWaiters.Add(-1)
	for {
		n, err := q.Submit(r)
		if n == 1 || err != ErrFull {
			q.signalRoom() // there may be more room
			return err
		}
		q.c.handle(q, q.block(ctx.Done(), q.room, func() bool { q.poll(nil); return len(q.room) > 0 }), false)
		if err := ctx.Err(); err != nil {
			return r.fail(q.c, err)
		}
	}
}

// signalRoom wakes one goroutine that waits for room.
func (q *Queue) signalRoom() {
	if q.roomWaiters.Load() > 0 {
		signal(q.room)
	}
}
