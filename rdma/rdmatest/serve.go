package rdmatest

import (
	"context"
	"encoding/gob"
	"fmt"
	"io"
	"net/rpc"
	"reflect"
	"sync"
	"syscall"
	"time"

	"github.com/culvert-io/culvert/rdma"
)

// Serve lets a [Far] at the other end of a connection use a provider of this process.
// It returns when the connection ends.
func Serve(conn io.ReadWriteCloser, p rdma.Provider, a *Arena) error {
	s := rpc.NewServer()
	if err := s.RegisterName(service, &Near{arena: a, objects: map[ID]any{0: nearProvider{p}}}); err != nil {
		return err
	}
	s.ServeConn(conn)
	return nil
}

const service = "Verbs"

// An ID stands for an object of the other process. 0 is its provider.
type ID int

// A Call is a method of an object of the other process, with its arguments.
type Call struct {
	Object ID
	Method string
	Args   []any
}

// An Answer has the results of a call, and apart from them its error.
type Answer struct {
	Results []any
	Fault   *Fault
}

// A Fault is an error on its way to another process.
type Fault struct {
	Text  string
	Errno syscall.Errno
}

func (f *Fault) Error() string { return f.Text }

// Unwrap is the errno, if there is one.
func (f *Fault) Unwrap() error {
	if f.Errno == 0 {
		return nil
	}
	return f.Errno
}

func init() {
	for _, argument := range []any{
		ID(0), time.Duration(0),
		rdma.DeviceInfo{},
		rdma.DeviceAttr{},
		rdma.PortAttr{},
		[]rdma.GIDEntry{},
		rdma.Access(0),
		rdma.QPCaps{},
		rdma.QPAttr{},
		rdma.Mask(0), rdma.State(0),
		[]rdma.SendWR{},
		[]rdma.RecvWR{},
		[]rdma.WC{},
	} {
		gob.Register(argument)
	}
}

// Near has the objects of this process, by the numbers that the other one knows.
type Near struct {
	arena *Arena

	mu      sync.Mutex
	last    ID
	objects map[ID]any
}

// Do calls the method. Objects among the results become IDs.
func (n *Near) Do(c Call, a *Answer) error {
	n.mu.Lock()
	object := n.objects[c.Object]
	n.mu.Unlock()
	method := reflect.ValueOf(object).MethodByName(c.Method)
	if object == nil || !method.IsValid() {
		return fmt.Errorf("object %d has no method %s", c.Object, c.Method)
	}
	var args []reflect.Value
	for _, arg := range c.Args {
		args = append(args, reflect.ValueOf(arg))
	}
	for _, result := range method.Call(args) {
		switch v := result.Interface().(type) {
		case error:
			a.Fault = &Fault{v.Error(), rdma.Errno(v)}
		case nil: // no error, or no object because of one
		case io.Closer:
			a.Results = append(a.Results, n.add(v))
		default:
			a.Results = append(a.Results, v)
		}
	}
	return nil
}

// add gives an object a number. Some have methods beside those of package rdma, because
// a context, memory or another object cannot be an argument.
func (n *Near) add(o any) ID {
	switch v := o.(type) {
	case rdma.PD:
		o = nearPD{v, n}
	case rdma.CQ:
		o = nearCQ{v}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last++
	n.objects[n.last] = o
	return n.last
}

type nearProvider struct{ rdma.Provider }

func (p nearProvider) OpenFirst() (rdma.Device, rdma.DeviceInfo, string, error) {
	d, err := p.Open("")
	if err != nil {
		return nil, rdma.DeviceInfo{}, "", err
	}
	return d, d.Info(), d.Provider(), nil
}

type nearPD struct {
	rdma.PD
	near *Near
}

func (p nearPD) RegisterShared(off, n uint64, access rdma.Access) (mr rdma.MR, addr uint64, lkey, rkey uint32, err error) {
	if mr, err = p.Register(rdma.Host(p.near.arena.mem[off:][:n]), access); err != nil {
		return nil, 0, 0, 0, err
	}
	return mr, mr.Addr(), mr.LKey(), mr.RKey(), nil
}

func (p nearPD) CreatePair(send, recv ID, caps rdma.QPCaps, signalAll bool) (rdma.QP, uint32, error) {
	p.near.mu.Lock()
	c := rdma.QPConfig{SendCQ: p.near.objects[send].(nearCQ).CQ, RecvCQ: p.near.objects[recv].(nearCQ).CQ, Caps: caps, SignalAll: signalAll}
	p.near.mu.Unlock()
	qp, err := p.CreateQP(c)
	if err != nil {
		return nil, 0, err
	}
	return qp, qp.Num(), nil
}

type nearCQ struct{ rdma.CQ }

func (q nearCQ) PollSome(n int) ([]rdma.WC, error) {
	wcs := make([]rdma.WC, n)
	got, err := q.Poll(wcs)
	return wcs[:got], err
}

func (q nearCQ) WaitFor(timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return q.Wait(ctx)
}
