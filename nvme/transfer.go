package nvme

import (
	"context"
	"fmt"
	"sync"
)

// Read reads blocks from lba into buf at off, a multiple of 4. It splits the
// transfer into commands. If one fails or ctx ends, it sends no more, waits for
// the others, and returns the first error; the contents of the buffer are then
// undefined.
func (n *Namespace) Read(ctx context.Context, buf *Buffer, off uint64, lba, blocks uint64) error {
	return n.transfer(ctx, OpRead, buf, off, lba, blocks)
}

// Write writes blocks from lba with the data of buf at off. It is durable after
// Flush.
func (n *Namespace) Write(ctx context.Context, buf *Buffer, off uint64, lba, blocks uint64) error {
	return n.transfer(ctx, OpWrite, buf, off, lba, blocks)
}

// WriteZeroes makes blocks read as zeros, if the drive supports it.
func (n *Namespace) WriteZeroes(ctx context.Context, lba, blocks uint64) error {
	return n.transfer(ctx, OpWriteZeroes, nil, 0, lba, blocks)
}

// Flush makes all completed writes durable.
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

// queue is the next shared queue.
func (c *Controller) queue() (*Queue, error) {
	if len(c.shared) == 0 {
		return nil, fmt.Errorf("nvme %s: no shared queues", c.Name())
	}
	return c.shared[int(c.turn.Add(1))%len(c.shared)], nil
}

// window is the largest number of commands in flight for one transfer.
const window = 16

// transfer splits a transfer into commands and keeps up to window in flight.
func (n *Namespace) transfer(ctx context.Context, op Op, buf *Buffer, off uint64, lba, blocks uint64) error {
	q, err := n.c.queue()
	if err != nil {
		return err
	}
	most := min(uint64(n.c.maxTransfer)>>n.shift, 1<<16)
	switch {
	case blocks == 0 || blocks > 1<<63>>n.shift:
		return fmt.Errorf("nvme %s: %v of %d blocks of namespace %d: invalid size", n.c.Name(), op, blocks, n.id)
	case op == OpWriteZeroes:
		most = 1 << 16
	case buf == nil || off > buf.size || blocks<<n.shift > buf.size-off:
		return fmt.Errorf("nvme %s: %v of %d blocks of %d bytes: range exceeds the buffer at offset %d", n.c.Name(), op, blocks, n.BlockSize(), off)
	}
	var started [window]*Request
	first, count := 0, 0
	finish := func() {
		r := started[first]
		first, count = (first+1)%window, count-1
		// After a failure, too, the remaining commands must complete.
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
		started[(first+count)%window] = r
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

// A requestPool keeps requests for reuse.
type requestPool struct{ sync.Pool }

func newRequestPool() *requestPool {
	return &requestPool{sync.Pool{New: func() any { return new(Request) }}}
}

func (s *requestPool) get() *Request { return s.Get().(*Request) }

func (s *requestPool) put(r *Request) {
	r.NS, r.Buf = nil, nil
	s.Put(r)
}
