package rdmatest

import (
	"cmp"
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

// A farObject is an object of the other process.
type farObject struct {
	*Far
	id ID
}

// do calls a method, whose results have no holes: with an error, some may be missing.
func (o farObject) do(method string, args ...any) ([]any, error) {
	var a Answer
	err := o.client.Call(service+".Do", Call{o.id, method, args}, &a)
	if err == nil && a.Fault != nil {
		err = a.Fault
	}
	return a.Results, err
}

// one calls a method with one result beside the error.
func one[T any](o farObject, method string, args ...any) (v T, err error) {
	results, err := o.do(method, args...)
	if len(results) == 1 {
		v = results[0].(T)
	}
	return v, err
}

// made calls a method that makes an object.
func (o farObject) made(method string, args ...any) (farObject, error) {
	id, err := one[ID](o, method, args...)
	return farObject{o.Far, id}, err
}

// Close implements the interfaces of package rdma.
func (o farObject) Close() error {
	_, err := o.do("Close")
	return err
}

type farDevice struct {
	farObject
	info     rdma.DeviceInfo
	provider string
}

// Open opens the first device.
func (f *Far) Open() (rdma.Device, error) {
	r, err := farObject{f, 0}.do("OpenFirst")
	if err != nil {
		return nil, err
	}
	return &farDevice{farObject{f, r[0].(ID)}, r[1].(rdma.DeviceInfo), r[2].(string)}, nil
}

func (d *farDevice) Info() rdma.DeviceInfo { return d.info }
func (d *farDevice) Provider() string      { return d.provider }

func (d *farDevice) Attr() (rdma.DeviceAttr, error) { return one[rdma.DeviceAttr](d.farObject, "Attr") }

func (d *farDevice) Port(n int) (rdma.PortAttr, error) {
	return one[rdma.PortAttr](d.farObject, "Port", n)
}

func (d *farDevice) GIDs(port int) ([]rdma.GIDEntry, error) {
	return one[[]rdma.GIDEntry](d.farObject, "GIDs", port)
}

func (d *farDevice) AllocPD() (rdma.PD, error) {
	o, err := d.made("AllocPD")
	return &farPD{o}, err
}

func (d *farDevice) CreateCQ(n int) (rdma.CQ, error) {
	o, err := d.made("CreateCQ", n)
	return &farCQ{o}, err
}

type farPD struct{ farObject }

func (p *farPD) Register(m rdma.Memory, access rdma.Access) (rdma.MR, error) {
	off, err := p.arena.offset(m)
	if err != nil {
		return nil, err
	}
	r, err := p.do("RegisterShared", off, m.Len, access)
	if err != nil {
		return nil, err
	}
	return &farMR{farObject{p.Far, r[0].(ID)}, r[1].(uint64), m.Len, r[2].(uint32), r[3].(uint32)}, nil
}

func (p *farPD) CreateQP(c rdma.QPConfig) (rdma.QP, error) {
	r, err := p.do("CreatePair", c.SendCQ.(*farCQ).id, c.RecvCQ.(*farCQ).id, c.Caps, c.SignalAll)
	if err != nil {
		return nil, err
	}
	return &farQP{farObject{p.Far, r[0].(ID)}, r[1].(uint32)}, nil
}

type farMR struct {
	farObject
	addr, n    uint64
	lkey, rkey uint32
}

func (m *farMR) LKey() uint32 { return m.lkey }
func (m *farMR) RKey() uint32 { return m.rkey }
func (m *farMR) Addr() uint64 { return m.addr }
func (m *farMR) Len() uint64  { return m.n }

type farCQ struct{ farObject }

func (q *farCQ) Poll(wcs []rdma.WC) (int, error) {
	got, err := one[[]rdma.WC](q.farObject, "PollSome", len(wcs))
	return copy(wcs, got), err
}

func (q *farCQ) Arm(solicited bool) error {
	_, err := q.do("Arm", solicited)
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
	_, err := q.do("WaitFor", timeout)
	return cmp.Or(ctx.Err(), err)
}

type farQP struct {
	farObject
	num uint32
}

func (q *farQP) Num() uint32 { return q.num }

func (q *farQP) State() rdma.State {
	s, err := one[rdma.State](q.farObject, "State")
	if err != nil {
		return rdma.UnknownData
	}
	return s
}

func (q *farQP) Modify(attr rdma.QPAttr, mask rdma.Mask) error {
	_, err := q.do("Modify", attr, mask)
	return err
}

func (q *farQP) PostSend(wrs []rdma.SendWR) (int, error) {
	return one[int](q.farObject, "PostSend", wrs)
}

func (q *farQP) PostRecv(wrs []rdma.RecvWR) (int, error) {
	return one[int](q.farObject, "PostRecv", wrs)
}
