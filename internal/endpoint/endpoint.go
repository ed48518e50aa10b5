// Package endpoint makes what one end of a connection needs of an RDMA device: a queue
// pair, its completion queue, and host memory that the device can use.
package endpoint

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/rdma"
)

// A Memory is registered host memory. The garbage collector neither moves nor frees it,
// as adapters need.
type Memory struct {
	rdma.MR
	Bytes []byte
}

// NewMemory allocates and registers n bytes.
func NewMemory(pd rdma.PD, n int, access rdma.Access) (*Memory, error) {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("allocate %d bytes: %w", n, err)
	}
	mr, err := pd.Register(rdma.Host(b), access)
	if err != nil {
		return nil, errors.Join(err, unix.Munmap(b))
	}
	return &Memory{mr, b}, nil
}

// Close deregisters and frees the memory.
func (m *Memory) Close() error { return errors.Join(m.MR.Close(), unix.Munmap(m.Bytes)) }

// A Config says what an Endpoint has.
type Config struct {
	PD          rdma.PD // nil means a domain of its own
	Completions int     // that the completion queue has room for
	Caps        rdma.QPCaps
	Bytes       int         // of memory; 0 means none
	Access      rdma.Access // to the memory
}

// An Endpoint is a new queue pair, with the same completion queue for both directions.
type Endpoint struct {
	Dev rdma.Device
	PD  rdma.PD
	CQ  rdma.CQ
	QP  rdma.QP
	Mem *Memory // nil if there is none

	undo []func() error
}

// New makes an endpoint of a device.
func New(dev rdma.Device, c Config) (*Endpoint, error) {
	e := &Endpoint{Dev: dev, PD: c.PD}
	if err := e.make(c); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

func (e *Endpoint) make(c Config) (err error) {
	if e.PD == nil {
		if e.PD, err = e.Dev.AllocPD(); err != nil {
			return err
		}
		e.undo = append(e.undo, e.PD.Close)
	}
	if c.Bytes > 0 {
		if e.Mem, err = NewMemory(e.PD, c.Bytes, c.Access); err != nil {
			return err
		}
		e.undo = append(e.undo, e.Mem.Close)
	}
	if e.CQ, err = e.Dev.CreateCQ(c.Completions); err != nil {
		return err
	}
	e.undo = append(e.undo, e.CQ.Close)
	e.QP, err = e.Pair(c.Caps)
	return err
}

// Pair makes a queue pair with the completion queue. Close destroys it.
func (e *Endpoint) Pair(caps rdma.QPCaps) (rdma.QP, error) {
	qp, err := e.PD.CreateQP(rdma.QPConfig{SendCQ: e.CQ, RecvCQ: e.CQ, Caps: caps})
	if err == nil {
		e.undo = append(e.undo, qp.Close)
	}
	return qp, err
}

// Close destroys everything, queue pairs first: then no peer and no device uses the
// memory.
func (e *Endpoint) Close() (err error) {
	for i := len(e.undo) - 1; i >= 0; i-- {
		err = errors.Join(err, e.undo[i]())
	}
	e.undo = nil
	return err
}

// SGE is a range of the memory in a work request.
func (e *Endpoint) SGE(off, n int) []rdma.SGE {
	return []rdma.SGE{rdma.Local(e.Mem, uint64(off), uint32(n))}
}
