package nvme

import (
	"context"
	"fmt"
	"sync"
)

// Read reads blocks from lba into buf at off, which is a multiple of 4, in as
// many commands as it takes. When one fails, or ctx ends, no further ones are
// sent and the others are waited for, and the error is the first one's; what the
// buffer then holds is undefined.
func (n *Namespace) Read(ctx context.Context, buf *Buffer, off uint64, lba, blocks uint64) error {
	return n.transfer(ctx, OpRead, buf, off, lba, blocks)
}

// Write writes blocks from lba with what buf holds at off. It is durable after
// a Flush.
func (n *Namespace) Write(ctx context.Context, buf *Buffer, off uint64, lba, blocks uint64) error {
	return n.transfer(ctx, OpWrite, buf, off, lba, blocks)
}

// WriteZeroes makes blocks read as zeros. Not every drive can.
func (n *Namespace) WriteZeroes(ctx context.Context, lba, blocks uint64) error {
	return n.transfer(ctx, OpWriteZeroes, nil, 0, lba, blocks)
}

// Flush makes durable what was written.
func (n *Namespace) Flush(ctx context.Context) error {
	q, err := n.c.queue()
	if err != nil {
		return err
	}
	r := n.c.spare.get()
	defer n.c.spare.put(r)
	r.Op, r.NS = OpFlush, n
	if err := q.submit(ctx, r); err != nil {
		return err
	}
	return q.Wait(ctx, r)
}

// queue is the next of the shared queues.
func (c *Controller) queue() (*Queue, error) {
	if len(c.shared) == 0 {
		return nil, fmt.Errorf("nvme %s: the driver was opened without shared queues (Config.Queues)", c.Name())
	}
	return c.shared[int(c.turn.Add(1))%len(c.shared)], nil
}

// window is how many commands of one transfer are in flight.
const window = 16

// transfer cuts a transfer into commands and keeps some of them in flight.
func (n *Namespace) transfer(ctx context.Context, op Op, buf *Buffer, off uint64, lba, blocks uint64) error {
	q, err := n.c.queue()
	if err != nil {
		return err
	}
	most := min(uint64(n.c.maxTransfer)>>n.shift, 1<<16)
	switch {
	case blocks == 0 || blocks > 1<<63>>n.shift:
		return fmt.Errorf("nvme %s: %v of %d blocks of namespace %d", n.c.Name(), op, blocks, n.id)
	case op == OpWriteZeroes:
		most = 1 << 16
	case buf == nil || off > buf.size || blocks<<n.shift > buf.size-off:
		return fmt.Errorf("nvme %s: %v of %d blocks of %d bytes: the buffer has no room for them at %d", n.c.Name(), op, blocks, n.BlockSize(), off)
	}
	var flying [window]*Request
	first, count := 0, 0
	finish := func() {
		r := flying[first]
		first, count = (first+1)%window, count-1
		// A command of a transfer that has failed is still waited for.
		if werr := q.Wait(ctx, r); err == nil {
			err = werr
		}
		n.c.spare.put(r)
	}
	for blocks > 0 && err == nil {
		if count == window {
			finish()
			continue
		}
		if err = ctx.Err(); err != nil {
			err = fmt.Errorf("nvme %s: %v of namespace %d: %w", n.c.Name(), op, n.id, err)
			break
		}
		r := n.c.spare.get()
		r.Op, r.NS, r.LBA, r.Blocks, r.Buf, r.Off = op, n, lba, uint32(min(blocks, most)), buf, off
		if err = q.submit(ctx, r); err != nil {
			n.c.spare.put(r)
			break
		}
		flying[(first+count)%window] = r
		count++
		lba += uint64(r.Blocks)
		off += uint64(r.Blocks) << n.shift
		blocks -= uint64(r.Blocks)
	}
	for count > 0 {
		finish()
	}
	return err
}

// A shelf keeps requests for use again.
type shelf struct {
	mu   sync.Mutex
	free []*Request
}

func (s *shelf) get() *Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.free)
	if n == 0 {
		return &Request{}
	}
	r := s.free[n-1]
	s.free = s.free[:n-1]
	return r
}

func (s *shelf) put(r *Request) {
	r.NS, r.Buf = nil, nil
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, r)
}
