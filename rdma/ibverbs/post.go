package ibverbs

import (
	"fmt"
	"math/bits"
	"sync"
	"syscall"

	abi "github.com/culvert-io/culvert/internal/abi/ibverbs"
	"github.com/culvert-io/culvert/internal/dl"
	"github.com/culvert-io/culvert/rdma"
)

// postBatch is how many requests one call of the library posts at most.
const postBatch = 32

// A poster posts to one queue of a queue pair. It builds chains of requests in memory
// outside of Go's heap.
type poster struct {
	post dl.Func

	mu      sync.Mutex
	memory  *block // nil once the queue pair is closed
	sges    []abi.SGE
	sgeMax  int       // of one request
	bad     []uintptr // where the library puts the request that it did not post
	sendWRs []abi.SendWR
	recvWRs []abi.RecvWR
}

// init makes the memory, with room for the requests, which the caller takes.
func (p *poster) init(sgeMax int, requests uintptr) error {
	b, err := newBlock(requests + room[abi.SGE](postBatch*max(sgeMax, 1)) + room[uintptr](1))
	if err != nil {
		return err
	}
	p.memory, p.sgeMax = b, sgeMax
	p.sges = array[abi.SGE](b, postBatch*max(sgeMax, 1))
	p.bad = array[uintptr](b, 1)
	return nil
}

func (p *poster) free() error {
	if p.memory == nil {
		return nil
	}
	b := p.memory
	p.memory = nil
	return b.free()
}

// list copies the ranges of request i and returns their address.
func (p *poster) list(i int, sges []rdma.SGE) uintptr {
	if len(sges) == 0 {
		return 0
	}
	own := p.sges[i*p.sgeMax:][:len(sges)]
	for j, s := range sges {
		own[j] = abi.SGE{Addr: s.Addr, Len: s.Len, LKey: s.LKey}
	}
	return address(&own[0])
}

// call posts a chain of n requests of the given size from first, and returns how many
// were posted.
func (p *poster) call(qp, first, size uintptr, n int) (int, error) {
	p.bad[0] = 0
	err := status(p.post, qp, first, address(&p.bad[0]))
	if err == nil {
		return n, nil
	}
	if i := int((p.bad[0] - first) / size); p.bad[0] >= first && i < n {
		return i, err
	}
	return 0, err
}

// postAll posts n requests, in a state from least on: build makes a chain of those from a
// number on.
func postAll[C any](q *QP, p *poster, what string, least rdma.State, n int, chain []C, build func(from int) (int, error)) (posted int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch s := rdma.State(q.asked.Load()); {
	case p.memory == nil:
		return 0, q.errClosed()
	case s < least:
		return 0, fmt.Errorf("%s QP %#x: the state is %v: %w", what, q.num, s, syscall.EINVAL)
	}
	for posted < n && err == nil {
		var built int
		if built, err = build(posted); built == 0 {
			break
		}
		done, perr := p.call(q.qp, address(&chain[0]), room[C](1), built)
		posted += done
		if perr != nil {
			return posted, fmt.Errorf("%s QP %#x: %w", what, q.num, perr)
		}
	}
	return posted, err
}

// PostSend implements rdma.QP.
func (q *QP) PostSend(wrs []rdma.SendWR) (int, error) {
	return postAll(q, &q.send, "post to", rdma.RTS, len(wrs), q.send.sendWRs, func(from int) (int, error) { return q.buildSends(wrs[from:]) })
}

// buildSends makes a chain of requests up to the first that is invalid.
func (q *QP) buildSends(wrs []rdma.SendWR) (n int, err error) {
	p := &q.send
	for i := range wrs[:min(len(wrs), postBatch)] {
		w := &wrs[i]
		if !w.Op.Valid() || len(w.SGE) > p.sgeMax {
			err = fmt.Errorf("post to QP %#x: %v with %d ranges, at most %d: %w", q.num, w.Op, len(w.SGE), p.sgeMax, syscall.EINVAL)
			break
		}
		c := &p.sendWRs[i]
		*c = abi.SendWR{
			ID: w.ID, SGList: p.list(i, w.SGE), NumSGE: int32(len(w.SGE)), Opcode: uint32(w.Op), SendFlags: uint32(w.Flags),
			Imm: bits.ReverseBytes32(w.Imm),
		}
		if w.Op.Atomic() {
			c.SetAtomic(w.RemoteAddr, w.CompareAdd, w.Swap, w.RKey)
		} else {
			c.SetRDMA(w.RemoteAddr, w.RKey)
		}
		if i > 0 {
			p.sendWRs[i-1].Next = address(c)
		}
		n++
	}
	return n, err
}

// PostRecv implements rdma.QP.
func (q *QP) PostRecv(wrs []rdma.RecvWR) (int, error) {
	posted, err := q.postRecvs(wrs)
	if posted > 0 && rdma.State(q.asked.Load()) == rdma.ErrState {
		// Linux's rxe does not look at a receive that is posted in the error state
		// until the queue pair is modified.
		if merr := q.Modify(rdma.QPAttr{State: rdma.ErrState}, rdma.MaskState); err == nil {
			err = merr
		}
	}
	return posted, err
}

func (q *QP) postRecvs(wrs []rdma.RecvWR) (int, error) {
	return postAll(q, &q.recv, "post a receive to", rdma.Init, len(wrs), q.recv.recvWRs, func(from int) (int, error) { return q.buildRecvs(wrs[from:]) })
}

func (q *QP) buildRecvs(wrs []rdma.RecvWR) (n int, err error) {
	p := &q.recv
	for i := range wrs[:min(len(wrs), postBatch)] {
		w := &wrs[i]
		if len(w.SGE) > p.sgeMax {
			err = fmt.Errorf("post a receive to QP %#x: %d ranges, at most %d: %w", q.num, len(w.SGE), p.sgeMax, syscall.EINVAL)
			break
		}
		c := &p.recvWRs[i]
		*c = abi.RecvWR{ID: w.ID, SGList: p.list(i, w.SGE), NumSGE: int32(len(w.SGE))}
		if i > 0 {
			p.recvWRs[i-1].Next = address(c)
		}
		n++
	}
	return n, err
}
