package verbs

import (
	"errors"
	"fmt"
	"time"

	"github.com/culvert-io/culvert/rdma"
)

// nextRequest makes the frame of the next request that may be sent.
func (q *QP) nextRequest(f *frame) bool {
	s := &q.send
	if q.state != rdma.RTS || s.paused || s.next == s.tail {
		return false
	}
	w := s.at(s.next)
	if w.status != rdma.Success {
		if s.next == s.head { // everything before it has completed
			q.fail(nil, w.status)
		}
		return false
	}
	op := w.wr.Op
	if op.Responds() && s.reads >= int(q.attr.MaxRDAtomic) || w.wr.Flags&rdma.Fence != 0 && s.reads > 0 {
		return false
	}
	h := header{
		kind: request(op), size: uint32(w.size), msn: s.next, addr: w.wr.RemoteAddr, rkey: w.wr.RKey, imm: w.wr.Imm,
		a: w.wr.CompareAdd, b: w.wr.Swap,
	}
	if w.wr.Flags&rdma.Solicited != 0 {
		h.flags = flagSolicited
	}
	f.begin(h)
	if op.Responds() {
		s.reads++
	} else {
		for _, p := range w.pieces {
			f.list.add(p)
		}
	}
	s.next++
	return true
}

// sourceGone marks a request whose local memory is gone. It fails when it is the oldest;
// partial means that a part was sent, so that the connection cannot be used any more.
func (q *QP) sourceGone(c *conn, msn uint64, partial bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.conn != c || msn < q.send.head || msn >= q.send.next {
		return
	}
	q.send.at(msn).status = rdma.LocProtErr
	q.send.rewind(msn)
	if msn == q.send.head {
		q.fail(nil, rdma.LocProtErr)
	} else if partial {
		q.disconnect()
	}
}

// resume has requests sent again over a new connection. executed is the number of
// requests that the peer has executed.
func (q *QP) resume(executed uint64) error {
	s := &q.send
	if executed < s.head || executed > s.next {
		return fmt.Errorf("the peer says it has executed %d requests; %d are complete and %d were sent", executed, s.head, s.next)
	}
	done := s.head
	for done < executed && !s.at(done).wr.Op.Responds() {
		done++
	}
	q.finish(done)
	s.rewind(s.head)
	return nil
}

// errProtocol means that the peer breaks the protocol.
var errProtocol = errors.New("the peer breaks the protocol")

// answer processes an answer of the peer.
func (q *QP) answer(c *conn, h header) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.conn != c {
		return errCut
	}
	s := &q.send
	if h.msn < s.head || h.msn >= s.next || !q.silent(h.msn) {
		return fmt.Errorf("%w: answer %#x to request %d of [%d, %d)", errProtocol, byte(h.kind), h.msn, s.head, s.next)
	}
	w := s.at(h.msn)
	reads := w.wr.Op == rdma.OpRead
	switch {
	case h.kind == kindAck && !w.wr.Op.Responds():
		q.finish(h.msn + 1)
	case h.kind == kindNak:
		q.finish(h.msn)
		q.fail(nil, nakStatus(h.code))
		return errCut
	case h.kind == kindRNR && w.wr.Op.Receives():
		return q.notReady(h)
	case h.kind == kindAtomic && w.wr.Op.Atomic():
		return q.atomicAnswer(c, w, h)
	case h.kind == kindRead && reads:
		return q.readAnswer(c, w, h)
	default:
		return fmt.Errorf("%w: answer %#x to %v", errProtocol, byte(h.kind), w.wr.Op)
	}
	return nil
}

// silent reports whether no request before msn needs an answer of its own.
func (q *QP) silent(msn uint64) bool {
	if q.send.reads == 0 {
		return true
	}
	for n := q.send.head; n < msn; n++ {
		if q.send.at(n).wr.Op.Responds() {
			return false
		}
	}
	return true
}

// notReady pauses the queue, and sends again from the rejected request.
func (q *QP) notReady(h header) error {
	s := &q.send
	q.finish(h.msn)
	q.dev.counters.rnr.Add(1)
	if q.attr.RNRRetry != 7 && s.rnrTries >= q.attr.RNRRetry {
		q.fail(nil, rdma.RNRRetryExcErr)
		return errCut
	}
	s.rnrTries = min(s.rnrTries+1, 7)
	s.rewind(h.msn)
	s.paused = true
	life := q.life
	time.AfterFunc(rnrTime(h.code), func() {
		q.mu.Lock()
		c := q.conn
		if q.life == life {
			s.paused = false
		}
		q.mu.Unlock()
		if c != nil {
			c.kick()
		}
	})
	return nil
}

// rnrTime is the time of a code of MinRNRTimer: 10 µs × 1, 2, 3, 4, 6, 8, 12, 16, 24 …;
// 0 is the longest.
func rnrTime(code uint8) time.Duration {
	const unit = 10 * time.Microsecond
	switch {
	case code == 0 || code > 31:
		return 65536 * unit
	case code == 1:
		return unit
	case code%2 == 0:
		return unit << (code / 2)
	}
	return unit << (code / 2) * 3 / 2
}

func (q *QP) atomicAnswer(c *conn, w *sendWQE, h header) error {
	q.finish(h.msn)
	var old [8]byte
	for i := range old { // host order: little-endian
		old[i] = byte(h.a >> (8 * i))
	}
	c.in.list.reset()
	for _, p := range w.pieces {
		c.in.list.add(p)
	}
	if err := c.store(old[:]); err != nil {
		q.fail(nil, rdma.LocProtErr)
		return errCut
	}
	q.finish(h.msn + 1)
	return nil
}

// readAnswer receives a part of a read's data. It unlocks meanwhile; fail and end wait
// for memory that is in use.
func (q *QP) readAnswer(c *conn, w *sendWQE, h header) error {
	last := h.flags&flagLast != 0
	if h.addr != w.got || uint64(h.size) > w.size-w.got || last != (w.got+uint64(h.size) == w.size) {
		return fmt.Errorf("%w: data of a read at %d+%d, expected at %d of %d", errProtocol, h.addr, h.size, w.got, w.size)
	}
	q.finish(h.msn)
	c.in.list.reset()
	skip := w.got
	for _, p := range w.pieces {
		k := min(skip, p.n)
		skip -= k
		if p.n > k {
			c.in.list.add(piece{r: p.r, off: p.off + k, n: p.n - k})
		}
	}
	q.mu.Unlock()
	err := c.receive(int(h.size))
	q.mu.Lock()
	switch {
	case q.conn != c:
		return errCut
	case errors.Is(err, errGone):
		q.fail(nil, rdma.LocProtErr)
		return errCut
	case err != nil:
		return err
	}
	w.got += uint64(h.size)
	if last {
		q.finish(h.msn + 1)
	} else {
		q.send.progress.Add(1)
	}
	return nil
}
