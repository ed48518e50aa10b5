package ibverbs

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	abi "github.com/culvert-io/culvert/internal/abi/ibverbs"
	"github.com/culvert-io/culvert/internal/dl"
	"github.com/culvert-io/culvert/rdma"
)

// pollBatch is how many completions one call of the library returns at most.
const pollBatch = 32

// A CQ is struct ibv_cq with a completion channel of its own.
type CQ struct {
	dev     *Device
	cq      uintptr
	channel uintptr
	file    *os.File // the channel, for Go's poller
	lost    atomic.Bool
	waiting chan struct{} // holds one value during a wait

	poll, notify dl.Func

	mu     sync.Mutex
	memory *block
	wcs    []abi.WC // in memory
	users  int      // queue pairs
	closed bool
}

// CreateCQ implements rdma.Device.
func (d *Device) CreateCQ(n int) (rdma.CQ, error) {
	q, err := d.createCQ(n)
	if err != nil {
		return nil, fmt.Errorf("create a completion queue of %d entries on %s: %w", n, d.info.Name, err)
	}
	return q, nil
}

func (d *Device) createCQ(n int) (*CQ, error) {
	if n < 1 {
		return nil, syscall.EINVAL
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fmt.Errorf("the device is closed: %w", syscall.EINVAL)
	}
	q := &CQ{dev: d, waiting: make(chan struct{}, 1), poll: function(d.ctx, abi.ContextPollCQ), notify: function(d.ctx, abi.ContextReqNotifyCQ)}
	if err := q.create(n); err != nil {
		return nil, errors.Join(err, q.destroy())
	}
	d.queues[q.cq] = q
	d.objects++
	return q, nil
}

// create makes the parts of a queue; destroy undoes what it did before an error.
func (q *CQ) create(n int) (err error) {
	if q.memory, err = newBlock(room[abi.WC](pollBatch)); err != nil {
		return err
	}
	q.wcs = array[abi.WC](q.memory, pollBatch)
	d := q.dev
	if q.channel, err = object(d.lib.createChannel, d.ctx); err != nil {
		return fmt.Errorf("completion channel: %w", err)
	}
	if q.file, err = pollable(at[abi.CompChannel](q.channel).FD, "completion channel of "+d.info.Name); err != nil {
		return err
	}
	q.cq, err = object(d.lib.createCQ, d.ctx, uintptr(n), 0, q.channel, 0)
	return err
}

func (q *CQ) destroy() error {
	if q.cq != 0 {
		if err := status(q.dev.lib.destroyCQ, q.cq); err != nil {
			return err
		}
	}
	var errs []error
	if q.file != nil {
		errs = append(errs, q.file.Close())
	}
	if q.channel != 0 {
		errs = append(errs, status(q.dev.lib.destroyChannel, q.channel))
	}
	if q.memory != nil {
		errs = append(errs, q.memory.free())
	}
	return errors.Join(errs...)
}

var errClosedCQ = fmt.Errorf("the completion queue is closed: %w", syscall.EINVAL)

// Poll implements rdma.CQ.
func (q *CQ) Poll(wcs []rdma.WC) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return 0, errClosedCQ
	}
	n := 0
	for n < len(wcs) {
		want := min(len(wcs)-n, pollBatch)
		got := int(int32(q.poll.Call(q.cq, uintptr(want), address(&q.wcs[0]))))
		if got < 0 || got > want {
			return n, fmt.Errorf("poll: the library returned %d for %d completions: %w", got, want, syscall.EIO)
		}
		for _, c := range q.wcs[:got] {
			wcs[n] = completion(c)
			n++
		}
		if got < want {
			break
		}
	}
	return n, q.trouble(n)
}

// trouble is why an empty queue stays empty.
func (q *CQ) trouble(n int) error {
	switch {
	case n > 0:
		return nil
	case q.lost.Load():
		return fmt.Errorf("poll: the completion queue overflowed and completions are lost (fix: make it as large as all queues of its queue pairs): %w", syscall.EOVERFLOW)
	case q.dev.fatal.Load():
		return fmt.Errorf("poll: %s failed (fix: look into dmesg, and open the device again): %w", q.dev.info.Name, syscall.EIO)
	}
	return nil
}

func completion(c abi.WC) rdma.WC {
	return rdma.WC{
		ID: c.ID, Status: rdma.Status(c.Status), Op: rdma.WCOpcode(c.Opcode), VendorErr: c.VendorErr,
		Len: c.ByteLen, Imm: bits.ReverseBytes32(c.Imm), QPNum: c.QPNum, SrcQP: c.SrcQP, Flags: rdma.WCFlags(c.Flags),
	}
}

// Arm implements rdma.CQ.
func (q *CQ) Arm(solicited bool) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return errClosedCQ
	}
	only := uintptr(0)
	if solicited {
		only = 1
	}
	if err := status(q.notify, q.cq, only); err != nil {
		return fmt.Errorf("arm: %w", err)
	}
	return nil
}

// Wait implements rdma.CQ. An event that an earlier Arm left behind ends it, too.
func (q *CQ) Wait(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select { // the deadline of the file is for one
	case q.waiting <- struct{}{}:
		defer func() { <-q.waiting }()
	case <-ctx.Done():
		return ctx.Err()
	}
	conn, err := q.file.SyscallConn()
	if err != nil {
		return errClosedCQ
	}
	for {
		err := q.waitOnce(ctx, conn)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		// The deadline was that of a wait before.
	}
}

func (q *CQ) waitOnce(ctx context.Context, conn syscall.RawConn) error {
	if err := q.file.SetReadDeadline(time.Time{}); err != nil {
		return errClosedCQ
	}
	stop := context.AfterFunc(ctx, func() { _ = q.file.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	err := conn.Read(func(uintptr) bool { return q.takeEvents() })
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return errClosedCQ
	}
	return err
}

// maxEvents bounds the events that one wait takes. Polls that found a completion after
// Arm leave theirs behind.
const maxEvents = 64

// takeEvents acknowledges the events of the channel, and reports whether there were any.
func (q *CQ) takeEvents() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return true
	}
	out := new([2]uintptr) // the queue, and its context
	n := uintptr(0)
	for n < maxEvents && status(q.dev.lib.getCQEvent, q.channel, dl.Ref(&out[0]), dl.Ref(&out[1])) == nil {
		n++
	}
	if n > 0 {
		q.dev.lib.ackCQEvents.Call(q.cq, n)
	}
	return n > 0
}

func (q *CQ) use(n int) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return errClosedCQ
	}
	q.users += n
	return nil
}

// Close implements rdma.CQ.
func (q *CQ) Close() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return fmt.Errorf("destroy completion queue: it is closed: %w", syscall.EINVAL)
	case q.users > 0:
		return fmt.Errorf("destroy completion queue: queue pairs use it: %w", syscall.EBUSY)
	}
	q.dev.mu.Lock()
	delete(q.dev.queues, q.cq)
	q.dev.mu.Unlock()
	if err := q.destroy(); err != nil {
		return fmt.Errorf("destroy completion queue: %w", err)
	}
	q.closed = true
	q.dev.drop()
	return nil
}
