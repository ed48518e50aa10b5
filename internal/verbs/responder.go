package verbs

import (
	"errors"
	"fmt"

	"github.com/culvert-io/culvert/rdma"
)

// A responder executes the peer's requests.
type responder struct {
	executed uint64 // requests executed: the number of the next one
	rnr      bool   // the next one found no receive; later ones are dropped
	ackDue   bool
	ack      uint64 // to be sent if ackDue
	answers  []answer
	atomics  [maxRDAtomic]atomicResult // for repeated requests
}

// An answer waits to be sent.
type answer struct {
	h      header
	region *Region // of a read
	off    uint64
	left   uint64
}

type atomicResult struct {
	msn, old uint64
	valid    bool
}

// nextAnswer makes the frame of the next answer. An acknowledgement waits for the
// answers to earlier requests.
func (q *QP) nextAnswer(f *frame) bool {
	r := &q.resp
	if len(r.answers) == 0 {
		if r.ackDue {
			r.ackDue = false
			f.begin(header{kind: kindAck, msn: r.ack})
			return true
		}
		return false
	}
	a := &r.answers[0]
	if r.ack < a.h.msn {
		r.ackDue = false // this answer acknowledges it
	}
	if a.h.kind != kindRead {
		f.begin(a.h)
		q.popAnswer()
		return true
	}
	n := min(a.left, readPart)
	h := a.h
	h.size = uint32(n)
	if n == a.left {
		h.flags = flagLast
	}
	f.begin(h)
	if n > 0 {
		f.list.add(piece{r: a.region, off: a.off, n: n})
	}
	a.off, a.left, a.h.addr = a.off+n, a.left-n, a.h.addr+n
	if a.left == 0 {
		q.popAnswer()
	}
	return true
}

func (q *QP) popAnswer() {
	r := &q.resp
	copy(r.answers, r.answers[1:])
	r.answers[len(r.answers)-1] = answer{}
	r.answers = r.answers[:len(r.answers)-1]
}

// readGone answers a read whose memory went away while its data was sent.
func (q *QP) readGone(c *conn, msn uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.conn == c {
		q.reject(c, msn, nakAccess, rdma.FlushErr)
	}
}

// reject answers with an error and fails the queue pair; the oldest receive gets a status.
func (q *QP) reject(c *conn, msn uint64, code uint8, recv rdma.Status) {
	q.dev.counters.rejected.Add(1)
	r := &q.resp
	clear(r.answers)
	r.answers, r.ackDue = r.answers[:0], false
	c.last = header{kind: kindNak, msn: msn, code: code}
	q.flushRecv(recv)
	q.fail(c, rdma.FlushErr)
}

// execute processes a request of the peer. An error ends the connection.
func (q *QP) execute(c *conn, op rdma.Opcode, h header) error {
	q.mu.Lock()
	err := q.accept(c, op, h)
	q.mu.Unlock()
	if err != nil {
		return err
	}
	n := h.follows()
	if c.in.discard {
		return c.skip(n)
	}
	err = c.receive(n)
	switch {
	case errors.Is(err, errGone):
		q.mu.Lock()
		if q.conn == c {
			q.rejectGone(c, op, h)
		}
		q.mu.Unlock()
		return c.skip(int(c.in.list.left))
	case err != nil:
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.conn != c {
		return errCut
	}
	q.executed(op, h)
	return nil
}

// rejectGone is for memory that went away while data arrived: the peer's target, or a
// receive buffer.
func (q *QP) rejectGone(c *conn, op rdma.Opcode, h header) {
	if op == rdma.OpSend || op == rdma.OpSendImm {
		q.reject(c, h.msn, nakOp, rdma.LocProtErr)
		return
	}
	q.reject(c, h.msn, nakAccess, rdma.FlushErr)
}

// accept checks a request, and prepares c.in for its data. Requests without data are
// executed here.
func (q *QP) accept(c *conn, op rdma.Opcode, h header) error {
	c.in.list.reset()
	c.in.discard = true
	if q.conn != c {
		return errCut
	}
	r := &q.resp
	switch {
	case h.msn < r.executed:
		return q.repeated(c, op, h)
	case h.msn > r.executed && r.rnr:
		return nil // sent before the peer knew that an earlier one was not accepted
	case h.msn > r.executed:
		return fmt.Errorf("%w: request %d, expected %d", errProtocol, h.msn, r.executed)
	case op.Receives() && q.recv.head == q.recv.tail:
		if !r.rnr || len(r.answers) == 0 {
			r.answers = append(r.answers, answer{h: header{kind: kindRNR, msn: h.msn, code: q.attr.MinRNRTimer}})
		}
		r.rnr = true
		return nil
	}
	r.rnr = false
	code, recv := q.target(c, op, h)
	if code != 0 {
		q.reject(c, h.msn, code, recv)
		return nil
	}
	if op.Responds() {
		r.executed++
		return nil
	}
	c.in.discard = false
	return nil
}

// repeated answers a request that was executed before a connection broke.
func (q *QP) repeated(c *conn, op rdma.Opcode, h header) error {
	q.dev.counters.duplicates.Add(1)
	r := &q.resp
	switch {
	case op == rdma.OpRead:
		if code, recv := q.target(c, op, h); code != 0 {
			q.reject(c, h.msn, code, recv)
		}
	case op.Atomic():
		old := r.atomics[h.msn%maxRDAtomic]
		if !old.valid || old.msn != h.msn || len(r.answers) >= maxRDAtomic {
			return fmt.Errorf("%w: repeated atomic %d", errProtocol, h.msn)
		}
		r.answers = append(r.answers, answer{h: header{kind: kindAtomic, msn: h.msn, a: old.old}})
	default:
		r.ack, r.ackDue = h.msn, true
	}
	return nil
}

// target finds the memory of a request. It returns the code of an error, and the status
// of the receive that it consumes.
func (q *QP) target(c *conn, op rdma.Opcode, h header) (code uint8, recv rdma.Status) {
	switch op {
	case rdma.OpSend, rdma.OpSendImm:
		w := q.recv.at(q.recv.head)
		switch {
		case w.status != rdma.Success:
			return nakOp, w.status
		case uint64(h.size) > w.size:
			return nakInvalid, rdma.LocLenErr
		}
		left := uint64(h.size)
		for _, p := range w.pieces {
			k := min(left, p.n)
			c.in.list.add(piece{r: p.r, off: p.off, n: k})
			left -= k
		}
		return 0, 0
	}
	need := map[rdma.Opcode]rdma.Access{
		rdma.OpWrite: rdma.RemoteWrite, rdma.OpWriteImm: rdma.RemoteWrite, rdma.OpRead: rdma.RemoteRead,
		rdma.OpCmpSwap: rdma.RemoteAtomic, rdma.OpFetchAdd: rdma.RemoteAtomic,
	}[op]
	if q.attr.Access&need == 0 {
		return nakInvalid, rdma.FlushErr
	}
	var off uint64
	r := (*Region)(nil)
	if h.size > 0 {
		ok := false
		if r = q.dev.region(h.rkey); r != nil && r.pd == q.pd {
			off, ok = r.at(h.addr, uint64(h.size), need)
		}
		if !ok {
			return nakAccess, rdma.FlushErr
		}
	}
	switch {
	case op == rdma.OpRead:
		return q.read(h, r, off), rdma.FlushErr
	case op.Atomic():
		return q.atomic(op, h, r, off), rdma.FlushErr
	case r != nil:
		c.in.list.add(piece{r: r, off: off, n: uint64(h.size)})
	}
	return 0, 0
}

func (q *QP) read(h header, r *Region, off uint64) (code uint8) {
	if len(q.resp.answers) >= int(q.attr.MaxDestRDAtomic) {
		return nakInvalid
	}
	q.resp.answers = append(q.resp.answers, answer{header{kind: kindRead, msn: h.msn}, r, off, uint64(h.size)})
	return 0
}

// atomic executes an atomic request.
func (q *QP) atomic(op rdma.Opcode, h header, r *Region, off uint64) (code uint8) {
	if h.addr%8 != 0 || len(q.resp.answers) >= int(q.attr.MaxDestRDAtomic) {
		return nakInvalid
	}
	var l list
	l.add(piece{r: r, off: off, n: 8})
	var old uint64
	_, err := l.move(true, 8, nil, func(segs [][]byte) (int, error) {
		q.dev.atomics.Lock()
		defer q.dev.atomics.Unlock()
		w := word(segs[0])
		if op == rdma.OpFetchAdd {
			old = w.Add(h.a) - h.a
			return 8, nil
		}
		for {
			if old = w.Load(); old != h.a || w.CompareAndSwap(old, h.b) {
				return 8, nil
			}
		}
	})
	if err != nil {
		return nakAccess
	}
	q.resp.atomics[h.msn%maxRDAtomic] = atomicResult{h.msn, old, true}
	q.resp.answers = append(q.resp.answers, answer{h: header{kind: kindAtomic, msn: h.msn, a: old}})
	return 0
}

// executed counts a request whose data has arrived.
func (q *QP) executed(op rdma.Opcode, h header) {
	r := &q.resp
	r.executed++
	r.ack, r.ackDue = h.msn, true
	if !op.Receives() {
		return
	}
	wc := rdma.WC{ID: q.recv.at(q.recv.head).id, Op: rdma.WCRecv, Len: h.size, QPNum: q.num, SrcQP: q.attr.DestQPN}
	if op == rdma.OpWriteImm {
		wc.Op = rdma.WCRecvImm
	}
	if op.HasImm() {
		wc.Imm, wc.Flags = h.imm, rdma.WithImm
	}
	q.recv.head++
	q.recvCQ.push(wc, h.flags&flagSolicited != 0)
}
