package ibverbs

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"

	abi "github.com/culvert-io/culvert/internal/abi/ibverbs"
	"github.com/culvert-io/culvert/internal/dl"
	"github.com/culvert-io/culvert/rdma"
)

// A QP is struct ibv_qp, reliable and connected.
type QP struct {
	pd             *PD
	qp             uintptr
	num            uint32
	sendCQ, recvCQ *CQ
	// asked is the last state that Modify reached. An error moves the queue pair on.
	asked atomic.Uint32

	send, recv poster

	mu     sync.Mutex // calls into the kernel
	closed bool
}

// CreateQP implements rdma.PD.
func (p *PD) CreateQP(c rdma.QPConfig) (rdma.QP, error) {
	q, err := p.createQP(c)
	if err != nil {
		return nil, fmt.Errorf("create a queue pair on %s: %w", p.dev.info.Name, err)
	}
	return q, nil
}

func (p *PD) createQP(c rdma.QPConfig) (*QP, error) {
	send, ok1 := c.SendCQ.(*CQ)
	recv, ok2 := c.RecvCQ.(*CQ)
	if !ok1 || !ok2 || send.dev != p.dev || recv.dev != p.dev {
		return nil, fmt.Errorf("its completion queues must be of the same device: %w", syscall.EINVAL)
	}
	q := &QP{pd: p, sendCQ: send, recvCQ: recv}
	if err := q.hold(); err != nil {
		return nil, err
	}
	if err := q.create(c); err != nil {
		return nil, errors.Join(err, q.release())
	}
	return q, nil
}

// hold keeps the domain and the queues from being closed.
func (q *QP) hold() error {
	p := q.pd
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return fmt.Errorf("the protection domain is closed: %w", syscall.EINVAL)
	}
	if err := q.sendCQ.use(1); err != nil {
		return err
	}
	if err := q.recvCQ.use(1); err != nil {
		return errors.Join(err, q.sendCQ.use(-1))
	}
	p.objects++
	return nil
}

func (q *QP) release() error {
	q.pd.drop()
	return errors.Join(q.sendCQ.use(-1), q.recvCQ.use(-1), q.send.free(), q.recv.free())
}

func (q *QP) create(c rdma.QPConfig) error {
	caps := c.Caps.WithDefaults()
	for _, n := range []int{caps.SendWR, caps.RecvWR, caps.SendSGE, caps.RecvSGE, caps.InlineData} {
		if n < 0 || n > 1<<24 {
			return fmt.Errorf("sizes %+v: %w", caps, syscall.EINVAL)
		}
	}
	d := q.pd.dev
	if err := q.send.init(caps.SendSGE, room[abi.SendWR](postBatch)); err != nil {
		return err
	}
	if err := q.recv.init(caps.RecvSGE, room[abi.RecvWR](postBatch)); err != nil {
		return err
	}
	q.send.sendWRs, q.recv.recvWRs = array[abi.SendWR](q.send.memory, postBatch), array[abi.RecvWR](q.recv.memory, postBatch)
	q.send.post, q.recv.post = function(d.ctx, abi.ContextPostSend), function(d.ctx, abi.ContextPostRecv)
	a := &abi.QPInitAttr{
		SendCQ: q.sendCQ.cq, RecvCQ: q.recvCQ.cq, Type: abi.QPTypeRC,
		Cap: abi.QPCap{
			SendWR: uint32(caps.SendWR), RecvWR: uint32(caps.RecvWR),
			SendSGE: uint32(caps.SendSGE), RecvSGE: uint32(caps.RecvSGE), Inline: uint32(caps.InlineData),
		},
	}
	if c.SignalAll {
		a.SigAll = 1
	}
	var err error
	if q.qp, err = object(d.lib.createQP, q.pd.pd, dl.Ref(a)); err != nil {
		return fmt.Errorf("sizes %+v: %w (fix: ask for less; Device.Attr has the limits)", caps, err)
	}
	q.num = at[abi.QPHead](q.qp).Num
	return nil
}

// Num implements rdma.QP.
func (q *QP) Num() uint32 { return q.num }

// State implements rdma.QP. It asks the kernel.
func (q *QP) State() rdma.State {
	q.mu.Lock()
	defer q.mu.Unlock()
	s, err := q.state()
	if err != nil {
		return rdma.UnknownData
	}
	return s
}

func (q *QP) state() (rdma.State, error) {
	if q.closed {
		return 0, q.errClosed()
	}
	attr, init := new(abi.QPAttr), new(abi.QPInitAttr)
	err := status(q.pd.dev.lib.queryQP, q.qp, dl.Ref(attr), uintptr(rdma.MaskState), dl.Ref(init))
	return rdma.State(attr.State), err
}

func (q *QP) errClosed() error { return fmt.Errorf("QP %#x is closed: %w", q.num, syscall.EINVAL) }

// Modify implements rdma.QP.
func (q *QP) Modify(a rdma.QPAttr, mask rdma.Mask) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	from, err := q.state()
	if err != nil {
		return fmt.Errorf("modify QP %#x: %w", q.num, err)
	}
	if err := rdma.CheckStep(from, a.State, mask); err != nil {
		return err
	}
	c := attributes(a)
	if err := status(q.pd.dev.lib.modifyQP, q.qp, dl.Ref(c), uintptr(mask)); err != nil {
		return fmt.Errorf("modify QP %#x from %v to %v: %w", q.num, from, a.State, err)
	}
	if mask&rdma.MaskState != 0 {
		q.asked.Store(uint32(a.State))
	}
	return nil
}

func attributes(a rdma.QPAttr) *abi.QPAttr {
	c := &abi.QPAttr{
		State: uint32(a.State), PathMTU: uint32(a.PathMTU), RQPSN: a.RQPSN, SQPSN: a.SQPSN, DestQPN: a.DestQPN,
		Access: uint32(a.Access), PKeyIndex: a.PKeyIndex, MaxRDAtomic: a.MaxRDAtomic, MaxDestRDAtomic: a.MaxDestRDAtomic,
		MinRNRTimer: a.MinRNRTimer, Port: a.Port, Timeout: a.Timeout, RetryCount: a.RetryCount, RNRRetry: a.RNRRetry,
		AH: abi.AHAttr{
			GRH: abi.GlobalRoute{
				DGID: a.AV.DGID, FlowLabel: a.AV.FlowLabel, SGIDIndex: a.AV.SGIDIndex,
				HopLimit: a.AV.HopLimit, TrafficClass: a.AV.TrafficClass,
			},
			DLID: a.AV.DLID, SL: a.AV.SL, Port: a.AV.Port,
		},
	}
	if a.AV.Global {
		c.AH.IsGlobal = 1
	}
	return c
}

// Close implements rdma.QP.
func (q *QP) Close() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return fmt.Errorf("destroy QP %#x: it is closed: %w", q.num, syscall.EINVAL)
	}
	// Posts take their own locks only.
	q.send.mu.Lock()
	defer q.send.mu.Unlock()
	q.recv.mu.Lock()
	defer q.recv.mu.Unlock()
	if err := status(q.pd.dev.lib.destroyQP, q.qp); err != nil {
		return fmt.Errorf("destroy QP %#x: %w", q.num, err)
	}
	q.closed = true
	return q.release()
}
