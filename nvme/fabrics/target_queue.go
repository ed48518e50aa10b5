package fabrics

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"

	nvme "github.com/culvert-io/culvert/internal/abi/nvme"
	abi "github.com/culvert-io/culvert/internal/abi/nvmf"
	"github.com/culvert-io/culvert/rdma"
)

// A targetQueue executes the commands of one queue of a host. A command occupies a slot:
// memory for its data and its completion.
type targetQueue struct {
	*queuePair
	t     *Target
	qid   uint16
	depth int
	host  string                     // for logs
	asked bool                       // Connect has come; the receiver's
	ctl   atomic.Pointer[controller] // set by Connect

	free chan int
	done []chan rdma.WC // completions of one-sided requests, by slot

	mu   sync.Mutex
	head uint16
	conn io.ReadCloser // ends with the queue

	tasks sync.WaitGroup
}

// slotSize is the memory of a slot: data and a completion. The data of all slots comes
// first, at page boundaries, so that a Backing can read a file with direct I/O.
const slotSize = maxData + nvme.CompletionSize

// newTargetQueue makes a queue that can receive commands.
func newTargetQueue(t *Target, req *abi.RDMARequest, host string) (*targetQueue, error) {
	depth := int(req.HSQSize) + 1
	p, err := newQueuePair(t.cfg.Device, nil, depth, depth*(capsuleSize+slotSize))
	if err != nil {
		return nil, err
	}
	q := &targetQueue{queuePair: p, t: t, qid: req.QID, depth: depth, host: host, free: make(chan int, depth)}
	err = rdma.Prepare(q.QP, targetOptions)
	for i := range depth {
		q.free <- i
		q.done = append(q.done, make(chan rdma.WC, 1))
		if err == nil {
			err = q.receive(i, q.capsule(i), capsuleSize)
		}
	}
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return q, nil
}

func (q *targetQueue) data(slot int) int      { return slot * maxData }
func (q *targetQueue) response(s int) int     { return q.depth*maxData + s*nvme.CompletionSize }
func (q *targetQueue) capsule(i int) int      { return q.depth*slotSize + i*capsuleSize }
func (q *targetQueue) bytes(at, n int) []byte { return q.Mem.Bytes[at : at+n : at+n] }

// stop ends the queue from outside.
func (q *targetQueue) stop() { _ = q.conn.Close() }

func (q *targetQueue) end() {
	q.t.leave(q)
	_ = q.Close()
}

// run executes commands until the host is gone, which is no error.
func (q *targetQueue) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	gone := make(chan struct{})
	go func() { // the connection ends with the queue
		defer close(gone)
		var b [1]byte
		_, _ = q.conn.Read(b[:])
		cancel(net.ErrClosed)
	}()
	err := q.receiveAll(ctx)
	cancel(err)
	q.tasks.Wait()
	q.stop()
	<-gone
	if errors.Is(context.Cause(ctx), net.ErrClosed) {
		return nil
	}
	return err
}

// receiveAll takes commands and completions off the completion queue.
func (q *targetQueue) receiveAll(ctx context.Context) error {
	wcs := make([]rdma.WC, 16)
	for {
		n, err := rdma.Await(ctx, q.CQ, wcs)
		if err != nil {
			return err
		}
		for _, wc := range wcs[:n] {
			switch wc.ID &^ 0xffffffff {
			case idRecv:
				err = wc.Err()
				if err == nil {
					err = q.start(ctx, slotOf(wc.ID), int(wc.Len))
				}
			case idSend:
				q.free <- slotOf(wc.ID)
				err = wc.Err()
			case idData:
				q.done[slotOf(wc.ID)] <- wc
			}
			if err != nil {
				return err
			}
		}
	}
}

// start copies a capsule out of its buffer, so that the host can send the next, and
// executes its command.
func (q *targetQueue) start(ctx context.Context, i, n int) error {
	if n < nvme.CommandSize {
		return fmt.Errorf("capsule of %d bytes", n)
	}
	var slot int
	select {
	case slot = <-q.free:
	default:
		return fmt.Errorf("the host has more than %d commands in flight", q.depth)
	}
	capsule := append([]byte(nil), q.bytes(q.capsule(i), n)...)
	if err := q.receive(i, q.capsule(i), capsuleSize); err != nil {
		return err
	}
	cmd, err := abi.Decode[nvme.Command](capsule)
	if err != nil {
		return err
	}
	r := &task{q: q, slot: slot, cmd: cmd, capsule: capsule}
	execute := r.execute
	if !q.asked { // Connect comes first, alone
		q.asked, execute = true, r.connect
	} else if q.ctl.Load() == nil {
		return errors.New("a command before Connect has succeeded")
	}
	q.tasks.Go(func() {
		if q.finish(r, execute(ctx)) != nil {
			q.stop()
		}
	})
	return nil
}

// finish sends the completion.
func (q *targetQueue) finish(r *task, status nvme.Status) error {
	q.mu.Lock()
	q.head = (q.head + 1) % uint16(q.depth)
	cqe := nvme.Completion{DW0: r.dw0, DW1: r.dw1, SQHD: q.head, DW3: nvme.MakeDW3(r.cmd.CID, false, status)}
	q.mu.Unlock()
	at := q.response(r.slot)
	copy(q.bytes(at, nvme.CompletionSize), abi.Encode(&cqe))
	return q.send(r.slot, at, nvme.CompletionSize)
}

// errData is data that could not be moved. The queue pair has failed.
var errData = errors.New("data transfer")

// move moves data between the slot and the memory that the SGL names.
func (q *targetQueue) move(ctx context.Context, slot int, op rdma.Opcode, s abi.SGL) error {
	err := rdma.Post(q.QP, rdma.SendWR{
		ID: idData | uint64(slot), Op: op, Flags: rdma.Signaled, SGE: q.SGE(q.data(slot), int(s.Len)),
		RemoteAddr: s.Addr, RKey: s.Key,
	})
	if err != nil {
		return fmt.Errorf("%w: %w", errData, err)
	}
	select {
	case wc := <-q.done[slot]:
		if err := wc.Err(); err != nil {
			return fmt.Errorf("%w: %w", errData, err)
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
