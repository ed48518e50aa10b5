package rdmatest

import (
	"context"
	"io"
	"net/rpc"
	"time"

	"github.com/culvert-io/culvert/rdma"
)

// A Far opens devices of another process, which runs [Serve]: the other end of a pair is
// then in that process, and everything but its memory is reached by calls.
type Far struct {
	client *rpc.Client
	arena  *Arena
}

// NewFar uses a connection to the other process and memory shared with it.
func NewFar(conn io.ReadWriteCloser, a *Arena) *Far { return &Far{rpc.NewClient(conn), a} }

// Close ends the connection, and with it Serve.
func (f *Far) Close() error { return f.client.Close() }

// call calls a method of near.
func (f *Far) call(method string, c Call) (a Answer, err error) {
	if err = f.client.Call(service+"."+method, c, &a); err == nil && a.Fault != nil {
		err = a.Fault
	}
	return a, err
}

// A farObject is an object of the other process.
type farObject struct {
	*Far
	number int
}

func (o farObject) do(method string, c Call) (Answer, error) {
	c.Object = o.number
	return o.call(method, c)
}

// Close implements the interfaces of package rdma.
func (o farObject) Close() error {
	_, err := o.do("Close", Call{})
	return err
}

type farDevice struct {
	farObject
	info     rdma.DeviceInfo
	provider string
}

// Open opens the first device.
func (f *Far) Open() (rdma.Device, error) {
	a, err := f.call("Open", Call{})
	if err != nil {
		return nil, err
	}
	return &farDevice{farObject{f, a.Object}, a.Info, a.Provider}, nil
}

func (d *farDevice) Info() rdma.DeviceInfo { return d.info }
func (d *farDevice) Provider() string      { return d.provider }

func (d *farDevice) Attr() (rdma.DeviceAttr, error) {
	a, err := d.do("Attr", Call{})
	return a.Attr, err
}

func (d *farDevice) Port(n int) (rdma.PortAttr, error) {
	a, err := d.do("Port", Call{N: n})
	return a.Port, err
}

func (d *farDevice) GIDs(port int) ([]rdma.GIDEntry, error) {
	a, err := d.do("GIDs", Call{N: port})
	return a.GIDs, err
}

func (d *farDevice) AllocPD() (rdma.PD, error) {
	a, err := d.do("AllocPD", Call{})
	if err != nil {
		return nil, err
	}
	return &farPD{farObject{d.Far, a.Object}}, nil
}

func (d *farDevice) CreateCQ(n int) (rdma.CQ, error) {
	a, err := d.do("CreateCQ", Call{N: n})
	if err != nil {
		return nil, err
	}
	return &farCQ{farObject{d.Far, a.Object}}, nil
}

type farPD struct{ farObject }

func (p *farPD) Register(m rdma.Memory, access rdma.Access) (rdma.MR, error) {
	off, err := p.arena.offset(m)
	if err != nil {
		return nil, err
	}
	a, err := p.do("Register", Call{Offset: off, Len: m.Len, Access: access})
	if err != nil {
		return nil, err
	}
	return &farMR{farObject{p.Far, a.Object}, a, m.Len}, nil
}

func (p *farPD) CreateQP(c rdma.QPConfig) (rdma.QP, error) {
	send, recv := c.SendCQ.(*farCQ), c.RecvCQ.(*farCQ)
	c.SendCQ, c.RecvCQ = nil, nil
	a, err := p.do("CreateQP", Call{SendCQ: send.number, RecvCQ: recv.number, Config: c})
	if err != nil {
		return nil, err
	}
	return &farQP{farObject{p.Far, a.Object}, a.Num}, nil
}

type farMR struct {
	farObject
	keys Answer
	n    uint64
}

func (m *farMR) LKey() uint32 { return m.keys.LKey }
func (m *farMR) RKey() uint32 { return m.keys.RKey }
func (m *farMR) Addr() uint64 { return m.keys.Addr }
func (m *farMR) Len() uint64  { return m.n }

type farCQ struct{ farObject }

func (q *farCQ) Poll(wcs []rdma.WC) (int, error) {
	a, err := q.do("Poll", Call{N: len(wcs)})
	return copy(wcs, a.WCs), err
}

func (q *farCQ) Arm(solicited bool) error {
	_, err := q.do("Arm", Call{Solicited: solicited})
	return err
}

// Wait looks at the context before and afterwards; its deadline goes with the call.
func (q *farCQ) Wait(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	timeout := patience
	if end, ok := ctx.Deadline(); ok {
		timeout = time.Until(end)
	}
	_, err := q.do("Wait", Call{Timeout: timeout})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

type farQP struct {
	farObject
	num uint32
}

func (q *farQP) Num() uint32 { return q.num }

func (q *farQP) State() rdma.State {
	a, err := q.do("State", Call{})
	if err != nil {
		return rdma.UnknownData
	}
	return rdma.State(a.Num)
}

func (q *farQP) Modify(attr rdma.QPAttr, mask rdma.Mask) error {
	_, err := q.do("Modify", Call{Attr: attr, Mask: mask})
	return err
}

func (q *farQP) PostSend(wrs []rdma.SendWR) (int, error) {
	a, err := q.do("PostSend", Call{Send: wrs})
	return a.N, err
}

func (q *farQP) PostRecv(wrs []rdma.RecvWR) (int, error) {
	a, err := q.do("PostRecv", Call{Recv: wrs})
	return a.N, err
}
