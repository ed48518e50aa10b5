package verbsapi

import (
	"encoding/binary"
	"fmt"
	"sync"
	"syscall"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/rdma"
)

// A pair is a queue pair. Requests are converted in batches, in memory of the pair.
type pair struct {
	rdma.QP
	owned

	mu   sync.Mutex
	send [batch]rdma.SendWR
	recv [batch]rdma.RecvWR
	at   [batch]cmem.Ptr // where each request is
	sges []rdma.SGE
}

// batch is how many requests are posted at once.
const batch = 16

// CreateQP makes a reliable connected queue pair; cap is struct ibv_qp_cap.
func (a *API) CreateQP(pd, send, recv handle.ID, caps cmem.Ptr, signalAll int32, out, num cmem.Ptr) error {
	p, err := find(a.domains, pd, "protection domain")
	if err != nil {
		return err
	}
	s, err := find(a.queues, send, "completion queue for sends")
	if err != nil {
		return err
	}
	r, err := find(a.queues, recv, "completion queue for receives")
	if err != nil {
		return err
	}
	c := cmem.Load[[5]uint32](caps)
	for _, n := range c {
		if n > 1<<30 {
			return fmt.Errorf("sizes %v exceed those of the device: %w", c, syscall.EINVAL)
		}
	}
	want := rdma.QPCaps{SendWR: int(c[0]), RecvWR: int(c[1]), SendSGE: int(c[2]), RecvSGE: int(c[3]), InlineData: int(c[4])}.WithDefaults()
	qp, err := p.CreateQP(rdma.QPConfig{SendCQ: s.CQ, RecvCQ: r.CQ, Caps: want, SignalAll: signalAll != 0})
	if err != nil {
		return err
	}
	cmem.Store(caps, [5]uint32{uint32(want.SendWR), uint32(want.RecvWR), uint32(want.SendSGE), uint32(want.RecvSGE), uint32(want.InlineData)})
	cmem.Store(num, qp.Num())
	return add(a.pairs, out, &pair{QP: qp, owned: p.owned}, qp.Close)
}

// DestroyQP destroys a queue pair.
func (a *API) DestroyQP(id handle.ID) error { return remove(a.pairs, id, "queue pair") }

// QPState is the state of a queue pair.
func (a *API) QPState(id handle.ID) (int64, error) {
	q, err := find(a.pairs, id, "queue pair")
	if err != nil {
		return 0, err
	}
	return int64(q.State()), nil
}

const qpAttrSize = 144

// ModifyQP sets the attributes of struct ibv_qp_attr that are in mask.
func (a *API) ModifyQP(id handle.ID, attr cmem.Ptr, mask uint32) error {
	q, err := find(a.pairs, id, "queue pair")
	if err != nil {
		return err
	}
	b := cmem.Load[[qpAttrSize]byte](attr)
	v := rdma.QPAttr{
		State: rdma.State(le.Uint32(b[0:])), PathMTU: rdma.MTU(le.Uint32(b[8:])), RQPSN: le.Uint32(b[20:]), SQPSN: le.Uint32(b[24:]),
		DestQPN: le.Uint32(b[28:]), Access: rdma.Access(le.Uint32(b[32:])), AV: addressVector(b[56:88]), PKeyIndex: le.Uint16(b[120:]),
		MaxRDAtomic: b[126], MaxDestRDAtomic: b[127], MinRNRTimer: b[128], Port: b[129], Timeout: b[130], RetryCount: b[131], RNRRetry: b[132],
	}
	const (
		currentState = 0x2  // a check that the state machine here does anyhow
		qkey         = 0x40 // of datagrams
		alternate    = 0x4000
		migration    = 0x40000
		capacity     = 0x80000
		rateLimit    = 0x2000000
	)
	if bad := mask & (qkey | alternate | migration | capacity | rateLimit); bad != 0 {
		return fmt.Errorf("modify queue pair: attributes %#x are not supported by the software machine: %w", bad, syscall.EOPNOTSUPP)
	}
	// PSNs have 24 bits; libraries pass on what programs give, and adapters look at those.
	v.RQPSN, v.SQPSN = v.RQPSN&psnMask, v.SQPSN&psnMask
	return q.Modify(v, rdma.Mask(mask&^currentState))
}

const psnMask = 0xffffff

// addressVector is struct ibv_ah_attr.
func addressVector(b []byte) rdma.AV {
	v := rdma.AV{
		FlowLabel: le.Uint32(b[16:]), SGIDIndex: b[20], HopLimit: b[21], TrafficClass: b[22], DLID: le.Uint16(b[24:]), SL: b[26],
		Global: b[29] != 0, Port: b[30],
	}
	if v.Global {
		copy(v.DGID[:], b[:16])
	}
	return v
}

// PostSend posts the list of struct ibv_send_wr that begins at wr. If one cannot be
// posted, bad is set to it.
func (a *API) PostSend(id handle.ID, wr, bad cmem.Ptr) error {
	q, err := find(a.pairs, id, "queue pair")
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return post(q, q.send[:], wr, bad, q.getSend, q.PostSend)
}

// post posts a list in batches: get reads a request and returns where the next one is. A
// request that cannot be read is refused after those before it were posted.
func post[W any](q *pair, room []W, wr, bad cmem.Ptr, get func(*W, cmem.Ptr) (cmem.Ptr, error), send func([]W) (int, error)) error {
	for wr != 0 {
		n, err := 0, error(nil)
		q.sges = q.sges[:0]
		for ; wr != 0 && n < len(room); n++ {
			q.at[n] = wr
			if wr, err = get(&room[n], wr); err != nil {
				break
			}
		}
		if done, err := send(room[:n]); err != nil {
			return q.refused(bad, done, err)
		}
		if err != nil {
			return q.refused(bad, n, err)
		}
	}
	return nil
}

// refused stores which request of a batch was not posted: the first one that was not done.
func (q *pair) refused(bad cmem.Ptr, done int, err error) error {
	cmem.Store(bad, q.at[done])
	return err
}

const (
	sendSize = 72 // of struct ibv_send_wr, up to the fields that are not supported
	recvSize = 28
	sgeSize  = 16
	maxSGE   = 256 // more than any device has
)

// getSend reads a request and returns where the next one is.
func (q *pair) getSend(w *rdma.SendWR, at cmem.Ptr) (next cmem.Ptr, err error) {
	b := cmem.Bulk(at, sendSize)
	*w = rdma.SendWR{
		ID: le.Uint64(b), Op: rdma.Opcode(le.Uint32(b[28:])), Flags: rdma.SendFlags(le.Uint32(b[32:])), Imm: binary.BigEndian.Uint32(b[36:]),
		RemoteAddr: le.Uint64(b[40:]), RKey: le.Uint32(b[48:]),
	}
	if w.Op.Atomic() {
		w.CompareAdd, w.Swap, w.RKey = le.Uint64(b[48:]), le.Uint64(b[56:]), le.Uint32(b[64:])
	}
	w.SGE, err = q.getSGEs(cmem.Ptr(le.Uint64(b[16:])), le.Uint32(b[24:]))
	return cmem.Ptr(le.Uint64(b[8:])), err
}

// PostRecv posts the list of struct ibv_recv_wr that begins at wr.
func (a *API) PostRecv(id handle.ID, wr, bad cmem.Ptr) error {
	q, err := find(a.pairs, id, "queue pair")
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return post(q, q.recv[:], wr, bad, q.getRecv, q.PostRecv)
}

func (q *pair) getRecv(w *rdma.RecvWR, at cmem.Ptr) (next cmem.Ptr, err error) {
	b := cmem.Bulk(at, recvSize)
	w.ID = le.Uint64(b)
	w.SGE, err = q.getSGEs(cmem.Ptr(le.Uint64(b[16:])), le.Uint32(b[24:]))
	return cmem.Ptr(le.Uint64(b[8:])), err
}

// getSGEs reads a list of struct ibv_sge. Lists of earlier requests stay valid when the
// memory of all grows: they keep the old one.
func (q *pair) getSGEs(at cmem.Ptr, n uint32) ([]rdma.SGE, error) {
	if n > maxSGE {
		return nil, fmt.Errorf("%d SGEs exceed those of the device: %w", int32(n), syscall.EINVAL)
	}
	first := len(q.sges)
	b := cmem.Bulk(at, int(n)*sgeSize)
	for ; len(b) > 0; b = b[sgeSize:] {
		q.sges = append(q.sges, rdma.SGE{Addr: le.Uint64(b), Len: le.Uint32(b[8:]), LKey: le.Uint32(b[12:])})
	}
	return q.sges[first:], nil
}
