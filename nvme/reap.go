package nvme

import (
	"sync/atomic"
	"time"

	abi "github.com/culvert-io/culvert/internal/abi/nvme"
)

// lookEvery is how often the controller's health is looked at while commands
// are in flight and none completes.
const lookEvery = 10 * time.Millisecond

// Poll answers requests whose completions have come, puts answered ones into
// done and returns how many. Without room in done they are left for the next
// call. It does not wait for completions; but where the controller has failed
// it resets it.
func (q *Queue) Poll(done []*Request) int {
	n := q.poll(done)
	if n > 0 {
		return n
	}
	q.mu.Lock()
	look := len(q.free) < q.depth && q.c.now() >= q.looked+q.c.lookEvery()
	q.mu.Unlock()
	if look {
		q.c.handle(q, q.look(), false)
		return q.poll(done)
	}
	return 0
}

// poll is Poll without a look at the controller's health.
func (q *Queue) poll(done []*Request) (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.reap()
	for ; n < len(done) && q.ready.first != nil; n++ {
		done[n] = q.ready.first
		q.hand(done[n])
	}
	return n
}

// hand gives an answered request to the caller. Call with mu held.
func (q *Queue) hand(r *Request) {
	q.ready.remove(r)
	r.state.Store(taken)
}

// reap takes completions from the queue, and tells the controller. Call with
// mu held.
func (q *Queue) reap() {
	if q.stopped {
		return // the reset takes what there is
	}
	if q.take() > 0 {
		q.c.t.Store32(q.cqdb, q.cqHead)
		q.feed()
	}
}

// take takes entries from the completion queue.
func (q *Queue) take() (taken uint32) {
	// Once round at most: a controller that writes without end holds nobody up.
	for ; taken < q.n; taken++ {
		e := &q.cq[q.cqHead]
		// The rest of the entry is valid once the phase tag is.
		dw3 := atomic.LoadUint32(&e.DW3)
		if abi.Phase(dw3) != q.phase {
			break
		}
		if !q.answer(dw3, e) {
			q.strays++
		}
		if q.cqHead++; q.cqHead == q.n {
			q.cqHead, q.phase = 0, !q.phase
		}
	}
	return taken
}

// answer finishes the request that an entry belongs to, if there is one. Call
// with mu held.
func (q *Queue) answer(dw3 uint32, e *abi.Completion) bool {
	cid := abi.CID(dw3)
	i := int(cid & slotMask)
	if i >= len(q.slots) || e.SQID != q.id {
		return false
	}
	s := &q.slots[i]
	if s.r == nil || s.cid != cid {
		return false
	}
	// Commands are fetched in order: this one was, and all before it. That is
	// as good as the head that the entry tells, and cannot be wrong.
	if q.after(s.pos) {
		q.head = (s.pos + 1) % q.n
	}
	r := s.r
	var err error
	if st := abi.StatusOf(dw3).Code(); st != abi.SUCCESS {
		err = r.fail(q.c, Status(st))
	}
	r.result = e.DW0
	q.vacate(i)
	r.finish(err)
	return true
}

// after reports whether a position lies between head and tail.
func (q *Queue) after(pos uint32) bool {
	return (pos+q.n-q.head)%q.n < (q.tail+q.n-q.head)%q.n
}

// vacate frees a slot, whose next command has another id. Call with mu held.
func (q *Queue) vacate(i int) {
	s := &q.slots[i]
	s.r = nil
	s.cid += 1 << slotBits
	q.free = append(q.free, uint16(i))
}

// abandon answers whatever is in flight and leaves the queue stopped. The
// controller must have been stopped, or have deleted the queue.
func (q *Queue) abandon(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stopped = true
	q.take() // what came before the end is a true answer
	for i := range q.slots {
		if r := q.slots[i].r; r != nil {
			q.vacate(i)
			r.finish(r.fail(q.c, err))
		}
	}
	q.feed()
}
