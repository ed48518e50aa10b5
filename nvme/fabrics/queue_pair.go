package fabrics

import (
	"github.com/culvert-io/culvert/internal/endpoint"
	"github.com/culvert-io/culvert/rdma"
)

// A queuePair is what both ends of a queue have, with memory for capsules and data.
type queuePair struct{ *endpoint.Endpoint }

// newQueuePair creates a queue pair for depth commands, with n bytes of memory. If pd is nil,
// it has its own.
func newQueuePair(dev rdma.Device, pd rdma.PD, depth, n int) (*queuePair, error) {
	e, err := endpoint.New(dev, endpoint.Config{
		PD: pd, Completions: 4 * depth, Bytes: n, Access: rdma.LocalWrite,
		// A command needs at most a SEND and a one-sided request at a time.
		Caps: rdma.QPCaps{SendWR: 2 * depth, RecvWR: depth},
	})
	return &queuePair{e}, err
}

// Work request IDs: what it was, and for which slot.
const (
	idRecv = iota << 32
	idSend
	idData
)

func slotOf(id uint64) int { return int(uint32(id)) }

func (p *queuePair) receive(slot, off, n int) error {
	return rdma.PostReceive(p.QP, rdma.RecvWR{ID: idRecv | uint64(slot), SGE: p.SGE(off, n)})
}

func (p *queuePair) send(slot, off, n int) error {
	return rdma.Post(p.QP, rdma.SendWR{ID: idSend | uint64(slot), Op: rdma.OpSend, Flags: rdma.Signaled, SGE: p.SGE(off, n)})
}
