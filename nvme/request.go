package nvme

import (
	"fmt"
	"sync/atomic"

	abi "github.com/culvert-io/culvert/internal/abi/nvme"
)

// An Op is the operation of a request.
type Op uint8

const (
	OpRead Op = iota
	OpWrite
	OpFlush       // of a whole namespace; without blocks and buffer
	OpWriteZeroes // without buffer
	opAdmin
)

var ops = [...]struct {
	name   string
	opcode uint8
}{
	OpRead:        {"read", abi.NVM_READ},
	OpWrite:       {"write", abi.NVM_WRITE},
	OpFlush:       {"flush", abi.NVM_FLUSH},
	OpWriteZeroes: {"write zeroes", abi.NVM_WRITE_ZEROES},
	opAdmin:       {"admin", 0},
}

func (o Op) String() string {
	if int(o) < len(ops) {
		return ops[o].name
	}
	return fmt.Sprintf("Op(%d)", uint8(o))
}

// A Request is one command. The caller must not change it while it is in flight.
// It can be submitted again after it is done. It must not be copied.
type Request struct {
	Op     Op
	NS     *Namespace
	LBA    uint64
	Blocks uint32
	Buf    *Buffer
	Off    uint64 // offset of the data in Buf, a multiple of 4

	admin *abi.Command // of opAdmin
	what  string       // of opAdmin, for errors

	state   atomic.Uint32
	waiting atomic.Bool // a goroutine waits for notify
	notify  chan struct{}
	result  uint32 // dword 0 of the completion
	err     error

	q          *Queue // of the last Submit; it guards the following fields
	cid        uint16
	prev, next *Request // in q.ready, while done
}

// States of a request.
const (
	idle uint32 = iota
	inFlight
	done  // completed, in Queue.ready
	taken // completed and delivered
)

// Done reports whether the request has completed since it was submitted.
func (r *Request) Done() bool { return r.state.Load() >= done }

// Err is the error of a completed request.
func (r *Request) Err() error { return r.err }

// check rejects invalid requests, above all those that exceed their buffer, which
// the controller cannot know. It acquires the buffer.
func (r *Request) check(c *Controller) error {
	if r.Op == opAdmin {
		return nil
	}
	switch {
	case r.Op > OpWriteZeroes:
		return fmt.Errorf("unknown operation")
	case r.NS == nil || r.NS.c != c:
		return fmt.Errorf("namespace is nil or of another controller")
	case r.Op == OpFlush:
		return nil
	case r.Blocks < 1 || r.Blocks > 1<<16:
		return fmt.Errorf("%d blocks: must be 1 to %d", r.Blocks, 1<<16)
	case r.Op == OpWriteZeroes:
		return nil
	case r.Buf == nil || r.Buf.c != c:
		return fmt.Errorf("buffer is nil or of another controller")
	}
	n := uint64(r.Blocks) << r.NS.shift
	switch {
	case n > uint64(c.maxTransfer):
		return fmt.Errorf("%d bytes exceed the limit of %d per command", n, c.maxTransfer)
	case r.Off%4 != 0:
		return fmt.Errorf("buffer offset %d must be a multiple of 4", r.Off)
	case r.Off > r.Buf.size || n > r.Buf.size-r.Off:
		return fmt.Errorf("range [%d:+%d] exceeds the buffer of %d bytes", r.Off, n, r.Buf.size)
	case !r.Buf.acquire():
		return fmt.Errorf("buffer: %w", ErrClosed)
	}
	return nil
}

// encode writes the command.
func (r *Request) encode(cmd *abi.Command, l prpLists) {
	if r.Op == opAdmin {
		*cmd = *r.admin
		return
	}
	if r.Op == OpFlush {
		*cmd = abi.Command{Opcode: abi.NVM_FLUSH, NSID: r.NS.id}
		return
	}
	*cmd = abi.Blocks(ops[r.Op].opcode, r.NS.id, r.LBA, r.Blocks)
	if r.Op != OpWriteZeroes {
		cmd.PRP1, cmd.PRP2 = putPRPs(r.Buf.table, r.Off, uint64(r.Blocks)<<r.NS.shift, l)
	}
}

// releaseBuffer undoes the acquire of check.
func (r *Request) releaseBuffer() {
	if r.Op == OpRead || r.Op == OpWrite {
		r.Buf.release()
	}
}

// start marks the request as in flight.
func (r *Request) start(q *Queue, cid uint16) {
	if r.notify == nil {
		r.notify = make(chan struct{}, 1)
	}
	select {
	case <-r.notify: // left from an earlier use
	default:
	}
	r.q, r.cid, r.err, r.result = q, cid, nil, 0
	r.state.Store(inFlight)
}

// finish completes the request. The caller holds q.mu.
func (r *Request) finish(err error) {
	r.err = err
	r.releaseBuffer()
	r.q.ready.add(r)
	r.state.Store(done)
	if r.waiting.Load() {
		signal(r.notify)
	}
	if r.q.reapers.Load() > 0 {
		signal(r.q.answered)
	}
}

// signal sends to a channel with a buffer of one, unless it is full.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// fail is an error that names the command.
func (r *Request) fail(c *Controller, err error) error {
	e := &OpError{Controller: c.Name(), Op: r.Op.String(), Err: err}
	switch {
	case r.Op == opAdmin:
		e.Op = r.what
	case r.NS != nil:
		e.NSID = r.NS.id
		if r.Op != OpFlush {
			e.LBA, e.Blocks = r.LBA, r.Blocks
		}
	}
	return e
}

// A list of requests. The zero value is empty.
type list struct{ first, last *Request }

func (l *list) add(r *Request) {
	r.prev, r.next = l.last, nil
	if l.last == nil {
		l.first = r
	} else {
		l.last.next = r
	}
	l.last = r
}

func (l *list) remove(r *Request) {
	if r.prev == nil {
		l.first = r.next
	} else {
		r.prev.next = r.next
	}
	if r.next == nil {
		l.last = r.prev
	} else {
		r.next.prev = r.prev
	}
	r.prev, r.next = nil, nil
}
