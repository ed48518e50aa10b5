package fabrics

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/rdma"
)

// A port is what both ends of a queue have: a queue pair, its completion queue, and
// registered memory for capsules and data.
type port struct {
	dev rdma.Device
	pd  rdma.PD // nil if it belongs to another
	cq  rdma.CQ
	qp  rdma.QP
	mr  rdma.MR
	mem []byte
}

// newPort creates a queue pair for depth commands, with n bytes of memory. If pd is nil,
// the port has its own.
func newPort(dev rdma.Device, pd rdma.PD, depth, n int) (p *port, err error) {
	p = &port{dev: dev}
	defer func() {
		if err != nil {
			_ = p.close()
		}
	}()
	if pd == nil {
		if p.pd, err = dev.AllocPD(); err != nil {
			return nil, err
		}
		pd = p.pd
	}
	if p.cq, err = dev.CreateCQ(4 * depth); err != nil {
		return nil, err
	}
	// A command needs at most a SEND and a one-sided request at a time.
	caps := rdma.QPCaps{SendWR: 2 * depth, RecvWR: depth}
	if p.qp, err = pd.CreateQP(rdma.QPConfig{SendCQ: p.cq, RecvCQ: p.cq, Caps: caps}); err != nil {
		return nil, err
	}
	if p.mem, err = unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS); err != nil {
		return nil, fmt.Errorf("allocate %d bytes: %w", n, err)
	}
	p.mr, err = pd.Register(rdma.Host(p.mem), rdma.LocalWrite)
	return p, err
}

// close destroys the queue pair first: then no peer and no device uses the memory.
func (p *port) close() error {
	var errs []error
	shut := func(c io.Closer, ok bool) {
		if ok {
			errs = append(errs, c.Close())
		}
	}
	shut(p.qp, p.qp != nil)
	shut(p.cq, p.cq != nil)
	shut(p.mr, p.mr != nil)
	if p.mem != nil {
		errs = append(errs, unix.Munmap(p.mem))
	}
	shut(p.pd, p.pd != nil)
	return errors.Join(errs...)
}

func (p *port) sge(off, n int) []rdma.SGE {
	return []rdma.SGE{rdma.Local(p.mr, uint64(off), uint32(n))}
}

// Work request IDs: what it was, and for which slot.
const (
	idRecv = iota << 32
	idSend
	idData
)

func slotOf(id uint64) int { return int(uint32(id)) }

func (p *port) receive(slot, off, n int) error {
	return rdma.PostReceive(p.qp, rdma.RecvWR{ID: idRecv | uint64(slot), SGE: p.sge(off, n)})
}

func (p *port) send(slot, off, n int) error {
	return rdma.Post(p.qp, rdma.SendWR{ID: idSend | uint64(slot), Op: rdma.OpSend, Flags: rdma.Signaled, SGE: p.sge(off, n)})
}
