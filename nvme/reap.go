package nvme

import (
	"sync/atomic"
	"time"

	abi "github.com/culvert-io/culvert/internal/abi/nvme"
)

// healthInterval is the interval of health checks while commands are in flight
// and none completes.
const healthInterval = 10 * time.Millisecond

// Poll processes completions, stores completed requests in done and returns
// their number. Requests that do not fit stay for the next call. It does not
// wait for completions, but resets a failed controller.
func (q *Queue) Poll(done []*Request) int {
	n := q.poll(done)
	if n > 0 {
		return n
	}
	q.mu.Lock()
	look := len(q.free) < q.depth && q.c.now() >= q.checkedAt+q.c.healthInterval()
	q.mu.Unlock()
	if look {
		q.c.handle(q, q.checkHealth(), false)
		return q.poll(done)
	}
	return 0
}

// poll is Poll without a health check.
func (q *Queue) poll(done []*Request) (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.reap()
	for ; n < len(done) && q.ready.first != nil; n++ {
		done[n] = q.ready.first
		q.deliver(done[n])
	}
	return n
}

// deliver passes a completed request to the caller. The caller holds mu.
func (q *Queue) deliver(r *Request) {
	q.ready.remove(r)
	r.state.Store(taken)
}

// reap takes completions and writes the doorbell. The caller holds mu.
func (q *Queue) reap() {
	if q.stopped {
		return // the reset takes the completions
	}
	if q.takeCompletions() > 0 {
		q.c.t.Store32(q.cqdb, q.cqHead)
		q.signalRoom()
	}
}

// takeCompletions processes new entries of the completion queue.
func (q *Queue) takeCompletions() (taken uint32) {
	// At most one round: a controller that writes endlessly must not block us.
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

// answer completes the request of an entry and reports whether there was one.
// The caller holds mu.
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
	// Commands are fetched in order, so this one and all before it were. Unlike
	// the head in the entry, this cannot be wrong.
	if q.after(s.pos) {
		q.head = (s.pos + 1) % q.n
	}
	r := s.r
	var err error
	if st := abi.StatusOf(dw3).Code(); st != abi.SUCCESS {
		err = r.fail(q.c, Status(st))
	}
	r.result = e.DW0
	q.freeSlot(i)
	r.finish(err)
	return true
}

// after reports whether a position is between head and tail.
func (q *Queue) after(pos uint32) bool {
	return (pos+q.n-q.head)%q.n < (q.tail+q.n-q.head)%q.n
}

// freeSlot frees a slot and changes the id of its next command. The caller holds
// mu.
func (q *Queue) freeSlot(i int) {
	s := &q.slots[i]
	s.r = nil
	s.cid += 1 << slotBits
	q.free = append(q.free, uint16(i))
}

// failInFlight ends all requests in flight with err and leaves the queue stopped.
// The controller must be stopped, or have deleted the queue.
func (q *Queue) failInFlight(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stopped = true
	q.takeCompletions() // completions before the stop are valid
	for i := range q.slots {
		if r := q.slots[i].r; r != nil {
			q.freeSlot(i)
			r.finish(r.fail(q.c, err))
		}
	}
	q.signalRoom()
}
