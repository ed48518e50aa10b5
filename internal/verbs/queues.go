package verbs

import (
	"fmt"
	"sync/atomic"
	"syscall"

	"github.com/culvert-io/culvert/rdma"
)

// A sendWQE is a posted send request.
type sendWQE struct {
	wr     rdma.SendWR // without SGEs
	pieces []piece
	inline []byte
	size   uint64
	got    uint64      // bytes of a read that have arrived
	status rdma.Status // an error that was found here
}

// A sendQueue has the requests head ≤ n < tail, of which those before next were sent.
type sendQueue struct {
	slots            []sendWQE
	head, next, tail uint64
	reads            int  // reads and atomics sent and not answered
	paused           bool // the peer has no receive
	rnrTries         uint8
	progress         atomic.Uint64
}

func (s *sendQueue) at(n uint64) *sendWQE { return &s.slots[n%uint64(len(s.slots))] }

func (s *sendQueue) clear() {
	s.head, s.next, s.tail, s.reads, s.paused, s.rnrTries = 0, 0, 0, 0, false, 0
}

// rewind has everything from n sent again.
func (s *sendQueue) rewind(n uint64) {
	for ; s.next > n; s.next-- {
		w := s.at(s.next - 1)
		w.got = 0
		if w.wr.Op.Responds() {
			s.reads--
		}
	}
}

type recvWQE struct {
	id     uint64
	pieces []piece
	size   uint64
	status rdma.Status
}

type recvQueue struct {
	slots      []recvWQE
	head, tail uint64
}

func (r *recvQueue) at(n uint64) *recvWQE { return &r.slots[n%uint64(len(r.slots))] }

func (r *recvQueue) clear() { r.head, r.tail = 0, 0 }

// PostSend implements rdma.QP.
func (q *QP) PostSend(wrs []rdma.SendWR) (int, error) {
	q.mu.Lock()
	n, err := q.postSend(wrs)
	c := q.conn
	q.mu.Unlock()
	if n > 0 && c != nil {
		c.kick()
	}
	if err != nil {
		err = fmt.Errorf("post to the send queue of QP %#x: %w", q.num, err)
	}
	return n, err
}

func (q *QP) postSend(wrs []rdma.SendWR) (n int, err error) {
	if q.closed || q.state != rdma.RTS && q.state != rdma.ErrState {
		return 0, fmt.Errorf("its state is %v, must be RTS: %w", q.state, syscall.EINVAL)
	}
	for i := range wrs {
		if err = q.checkSend(&wrs[i]); err != nil {
			break
		}
		if q.state == rdma.ErrState {
			q.complete(&sendWQE{wr: wrs[i]}, rdma.FlushErr)
		} else {
			q.enqueue(&wrs[i])
		}
		n++
	}
	q.watch()
	return n, err
}

// checkSend returns what verbs reject at once.
func (q *QP) checkSend(wr *rdma.SendWR) error {
	size := uint64(0)
	for _, s := range wr.SGE {
		size += uint64(s.Len)
	}
	switch {
	case !wr.Op.Valid():
		return fmt.Errorf("unknown operation %d: %w", wr.Op, syscall.EINVAL)
	case len(wr.SGE) > q.caps.SendSGE:
		return fmt.Errorf("%d SGEs, the queue pair has %d: %w", len(wr.SGE), q.caps.SendSGE, syscall.EINVAL)
	case size > maxMessage:
		return fmt.Errorf("%d bytes exceed the port's %d (fix: split): %w", size, maxMessage, syscall.EINVAL)
	case wr.Flags&rdma.Inline != 0 && (size > uint64(q.caps.InlineData) || wr.Op.Responds()):
		return fmt.Errorf("%d bytes of %v inline, the queue pair has %d for writes and sends: %w", size, wr.Op, q.caps.InlineData, syscall.EINVAL)
	case wr.Op.Atomic() && size != 8:
		return fmt.Errorf("%v of %d bytes, must be 8: %w", wr.Op, size, syscall.EINVAL)
	case wr.Op.Responds() && q.state == rdma.RTS && q.attr.MaxRDAtomic == 0:
		return fmt.Errorf("%v on a queue pair with MaxRDAtomic 0: %w", wr.Op, syscall.EINVAL)
	case q.send.tail-q.send.head == uint64(len(q.send.slots)):
		return fmt.Errorf("all %d entries are in use: %w", len(q.send.slots), syscall.ENOMEM)
	}
	return nil
}

func (q *QP) enqueue(wr *rdma.SendWR) {
	w := q.send.at(q.send.tail)
	pieces, inline := w.pieces[:0], w.inline[:0]
	*w = sendWQE{wr: *wr}
	w.wr.SGE = nil
	if wr.Flags&rdma.Inline != 0 {
		w.inline = gather(inline, wr.SGE)
		w.size = uint64(len(w.inline))
		if w.size > 0 {
			pieces = append(pieces, piece{bytes: w.inline, n: w.size})
		}
		w.pieces = pieces
	} else {
		w.inline = inline
		need := rdma.Access(0)
		if wr.Op.Responds() {
			need = rdma.LocalWrite
		}
		w.pieces, w.size, w.status = q.resolve(pieces, wr.SGE, need)
	}
	q.send.tail++
}

// resolve finds the regions of local ranges.
func (q *QP) resolve(to []piece, sge []rdma.SGE, need rdma.Access) (pieces []piece, size uint64, s rdma.Status) {
	for _, g := range sge {
		if g.Len == 0 {
			continue
		}
		size += uint64(g.Len)
		r := q.dev.region(g.LKey)
		if r == nil || r.pd != q.pd {
			return to, size, rdma.LocProtErr
		}
		off, ok := r.at(g.Addr, uint64(g.Len), need)
		if !ok {
			return to, size, rdma.LocProtErr
		}
		to = append(to, piece{r: r, off: off, n: uint64(g.Len)})
	}
	return to, size, rdma.Success
}

// PostRecv implements rdma.QP.
func (q *QP) PostRecv(wrs []rdma.RecvWR) (n int, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || q.state == rdma.Reset {
		return 0, fmt.Errorf("post to the receive queue of QP %#x: its state is RESET, must be INIT or later: %w", q.num, syscall.EINVAL)
	}
	for i := range wrs {
		wr := &wrs[i]
		switch {
		case len(wr.SGE) > q.caps.RecvSGE:
			return n, fmt.Errorf("post to the receive queue of QP %#x: %d SGEs, the queue pair has %d: %w", q.num, len(wr.SGE), q.caps.RecvSGE, syscall.EINVAL)
		case q.state == rdma.ErrState:
			q.recvCQ.push(rdma.WC{ID: wr.ID, Status: rdma.FlushErr, Op: rdma.WCRecv, QPNum: q.num}, false)
		case q.recv.tail-q.recv.head == uint64(len(q.recv.slots)):
			return n, fmt.Errorf("post to the receive queue of QP %#x: all %d entries are in use: %w", q.num, len(q.recv.slots), syscall.ENOMEM)
		default:
			w := q.recv.at(q.recv.tail)
			w.id = wr.ID
			w.pieces, w.size, w.status = q.resolve(w.pieces[:0], wr.SGE, rdma.LocalWrite)
			q.recv.tail++
		}
		n++
	}
	return n, nil
}

// complete makes the completion of a send request.
func (q *QP) complete(w *sendWQE, s rdma.Status) {
	if s == rdma.Success && w.wr.Flags&rdma.Signaled == 0 && !q.cfg.SignalAll {
		return
	}
	q.sendCQ.push(rdma.WC{ID: w.wr.ID, Status: s, Op: w.wr.Op.WC(), Len: uint32(w.size), QPNum: q.num}, false)
}

// finish completes the requests before n.
func (q *QP) finish(n uint64) {
	if q.send.head < n {
		q.send.rnrTries, q.retries = 0, 0
	}
	for ; q.send.head < n; q.send.head++ {
		w := q.send.at(q.send.head)
		if w.wr.Op.Responds() && q.send.head < q.send.next {
			q.send.reads--
		}
		q.complete(w, rdma.Success)
	}
	q.send.next = max(q.send.next, q.send.head)
	q.send.progress.Add(1)
}

// flushSend completes all requests; the oldest gets a status of its own.
func (q *QP) flushSend(oldest rdma.Status) {
	for s := oldest; q.send.head < q.send.tail; q.send.head++ {
		q.complete(q.send.at(q.send.head), s)
		s = rdma.FlushErr
	}
	q.send.next, q.send.reads = q.send.head, 0
}

// flushRecv completes all receives; the oldest gets a status of its own.
func (q *QP) flushRecv(oldest rdma.Status) {
	for s := oldest; q.recv.head < q.recv.tail; q.recv.head++ {
		q.recvCQ.push(rdma.WC{ID: q.recv.at(q.recv.head).id, Status: s, Op: rdma.WCRecv, QPNum: q.num}, false)
		s = rdma.FlushErr
	}
}
