package fabrics

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	nvme "github.com/culvert-io/culvert/internal/abi/nvme"
	abi "github.com/culvert-io/culvert/internal/abi/nvmf"
	"github.com/culvert-io/culvert/rdma"
)

// A CommandError is a command that the target completed with an error.
type CommandError struct {
	Op     string
	Status uint16
	Result uint32 // dword 0 of the completion
}

func (e *CommandError) Error() string { return fmt.Sprintf("%s: %v", e.Op, nvme.Status(e.Status)) }

// inCapsule is how much data a command capsule can have behind the command: the data of
// Connect.
const inCapsule = abi.ConnectDataSize

const capsuleSize = nvme.CommandSize + inCapsule

// A queue is a submission queue of a host with its completions.
type queue struct {
	*queuePair
	conn  io.ReadCloser // ends with the queue; nothing is read from it
	depth int
	free  chan int // command ids

	mu      sync.Mutex
	waiting []chan nvme.Completion // by command id
	err     error

	ended   chan struct{}
	cancel  context.CancelFunc
	polled  chan struct{}
	closing sync.Once
}

// newQueue connects a queue pair with the target's, and starts to receive completions.
func newQueue(ctx context.Context, c *Controller, qid, cntlid uint16) (q *queue, err error) {
	depth := c.cfg.Depth
	p, err := newQueuePair(c.cfg.Device, c.pd, depth, depth*(capsuleSize+nvme.CompletionSize))
	if err != nil {
		return nil, err
	}
	q = &queue{queuePair: p, depth: depth, ended: make(chan struct{}), polled: make(chan struct{})}
	q.free = make(chan int, depth)
	q.waiting = make([]chan nvme.Completion, depth)
	err = rdma.Prepare(p.QP, queueOptions)
	for i := range depth {
		q.free <- i
		if err == nil {
			err = q.receive(i, q.completion(i), nvme.CompletionSize)
		}
	}
	if err == nil {
		req := abi.RDMARequest{QID: qid, HRQSize: uint16(depth), HSQSize: uint16(depth - 1), CNTLID: cntlid}
		q.conn, err = c.join(ctx, p, req)
	}
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	poll, cancel := context.WithCancel(context.Background())
	q.cancel = cancel
	go q.poll(poll)
	go q.watch()
	return q, nil
}

// queueOptions let the target write and read what commands name.
var queueOptions = rdma.Options{Access: rdma.RemoteWrite | rdma.RemoteRead}

// capsule and completion are where a slot's are in the memory.
func (q *queue) capsule(slot int) int    { return slot * capsuleSize }
func (q *queue) completion(slot int) int { return q.depth*capsuleSize + slot*nvme.CompletionSize }

// watch notices that the target closed the stream.
func (q *queue) watch() {
	var b [1]byte
	_, err := q.conn.Read(b[:])
	if err == nil {
		err = errors.New("the target sent data where none is expected")
	}
	q.fail(fmt.Errorf("the target ended the queue: %w", err))
}

// fail ends all commands; the first cause counts.
func (q *queue) fail(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err == nil {
		q.err = err
		close(q.ended)
	}
}

// close ends the queue: when it returns, the target reaches no memory through it.
func (q *queue) close(err error) {
	q.fail(err)
	q.closing.Do(func() {
		q.conn.Close()
		q.cancel()
		<-q.polled
		_ = q.Close()
	})
}

// poll gives completions to the commands that wait for them.
func (q *queue) poll(ctx context.Context) {
	defer close(q.polled)
	wcs := make([]rdma.WC, 16)
	for {
		n, err := rdma.Await(ctx, q.CQ, wcs)
		for _, wc := range wcs[:n] {
			if err == nil {
				err = wc.Err()
			}
			if err == nil && wc.ID&^0xffffffff == idRecv {
				err = q.complete(slotOf(wc.ID), int(wc.Len))
			}
		}
		if err != nil {
			q.fail(err)
			return
		}
	}
}

// complete reads the completion in a slot and gives the slot back to the queue pair.
func (q *queue) complete(slot, n int) error {
	if n != nvme.CompletionSize {
		return fmt.Errorf("the target sent a completion of %d bytes", n)
	}
	at := q.completion(slot)
	cqe, err := abi.Decode[nvme.Completion](q.Mem.Bytes[at : at+nvme.CompletionSize])
	if err != nil {
		return err
	}
	if err := q.receive(slot, at, nvme.CompletionSize); err != nil {
		return err
	}
	cid := int(nvme.CID(cqe.DW3))
	q.mu.Lock()
	defer q.mu.Unlock()
	if cid >= q.depth || q.waiting[cid] == nil {
		return fmt.Errorf("the target completed command %d, which is not in flight", cid)
	}
	q.waiting[cid] <- cqe
	q.waiting[cid] = nil
	return nil
}

// do sends a command, with data in its capsule if there is any, and waits for its
// completion. If there is none, the queue is closed before do returns: the target may be
// about to move data.
func (q *queue) do(ctx context.Context, op string, cmd nvme.Command, data []byte) (nvme.Completion, error) {
	var slot int
	select {
	case slot = <-q.free:
	case <-q.ended:
		return nvme.Completion{}, fmt.Errorf("%s: %w", op, q.err)
	case <-ctx.Done():
		return nvme.Completion{}, context.Cause(ctx)
	}
	ch := make(chan nvme.Completion, 1)
	if err := q.post(slot, cmd, data, ch); err != nil {
		q.fail(err)
	}
	select {
	case cqe := <-ch:
		q.free <- slot
		if s := nvme.StatusOf(cqe.DW3); s.Code() != nvme.SUCCESS {
			return cqe, &CommandError{op, uint16(s), cqe.DW0}
		}
		return cqe, nil
	case <-q.ended:
		q.close(q.err)
		return nvme.Completion{}, fmt.Errorf("%s: %w", op, q.err)
	case <-ctx.Done():
		q.close(context.Cause(ctx))
		return nvme.Completion{}, context.Cause(ctx)
	}
}

// post sends a command, unless the queue has ended: its memory may be gone then.
func (q *queue) post(slot int, cmd nvme.Command, data []byte, ch chan nvme.Completion) error {
	cmd.CID = uint16(slot)
	if cmd.Flags&abi.FLAGS_SGL != 0 && cmd.PRP1|cmd.PRP2 == 0 {
		// A command without data has an SGL, too: Linux's target wants a keyed one.
		_ = abi.Keyed(0, 0, 0).Put(&cmd) // fails for long ones only
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err != nil {
		return q.err
	}
	q.waiting[slot] = ch
	at := q.capsule(slot)
	n := copy(q.Mem.Bytes[at:], abi.Encode(&cmd))
	n += copy(q.Mem.Bytes[at+n:at+capsuleSize], data)
	return q.send(slot, at, n)
}
