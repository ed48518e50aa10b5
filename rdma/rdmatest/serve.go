package rdmatest

import (
	"context"
	"errors"
	"io"
	"net/rpc"
	"sync"
	"syscall"
	"time"

	"github.com/culvert-io/culvert/rdma"
)

// Serve lets a [Far] at the other end of a connection use a provider of this process.
// It returns when the connection ends.
func Serve(conn io.ReadWriteCloser, p rdma.Provider, a *Arena) error {
	s := rpc.NewServer()
	if err := s.RegisterName(service, &near{provider: p, arena: a, objects: map[int]any{}}); err != nil {
		return err
	}
	s.ServeConn(conn)
	return nil
}

const service = "Verbs"

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

// A Call names an object of the other process, and what to do with it; every method uses
// what it needs.
type Call struct {
	Object         int
	N              int
	Solicited      bool
	Timeout        time.Duration
	Offset, Len    uint64
	Access         rdma.Access
	SendCQ, RecvCQ int
	Config         rdma.QPConfig // without the queues
	Attr           rdma.QPAttr
	Mask           rdma.Mask
	Send           []rdma.SendWR
	Recv           []rdma.RecvWR
}

// An Answer is what came of it.
type Answer struct {
	Fault      *Fault
	Object     int
	N          int
	Num        uint32 // of a queue pair, or the state of one
	Addr       uint64
	LKey, RKey uint32
	Info       rdma.DeviceInfo
	Provider   string
	Attr       rdma.DeviceAttr
	Port       rdma.PortAttr
	GIDs       []rdma.GIDEntry
	WCs        []rdma.WC
}

// near has the objects of this process, by the numbers that the other one knows. Its
// methods are those of package rdma.
type near struct {
	provider rdma.Provider
	arena    *Arena

	mu      sync.Mutex
	last    int
	objects map[int]any
}

// add gives an object a number, unless there is an error.
func (n *near) add(o any, err error, a *Answer) error {
	if err == nil {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.last++
		n.objects[n.last], a.Object = o, n.last
	}
	return a.fail(err)
}

// fail puts an error into the answer. The call itself has succeeded.
func (a *Answer) fail(err error) error {
	if err != nil {
		a.Fault = &Fault{err.Error(), rdma.Errno(err)}
	}
	return nil
}

var errNoObject = errors.New("no such object")

// object finds an object that must be a T.
func object[T any](n *near, number int) (T, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	o, ok := n.objects[number].(T)
	if !ok {
		return o, errNoObject
	}
	return o, nil
}

// with calls f with the object of the call.
func with[T any](n *near, c Call, f func(T) error) error {
	o, err := object[T](n, c.Object)
	if err != nil {
		return err
	}
	return f(o)
}

func (n *near) Open(_ Call, a *Answer) error {
	d, err := n.provider.Open("")
	if err != nil {
		return a.fail(err)
	}
	a.Info, a.Provider = d.Info(), d.Provider()
	return n.add(d, nil, a)
}

func (n *near) Attr(c Call, a *Answer) error {
	return with(n, c, func(d rdma.Device) (err error) {
		a.Attr, err = d.Attr()
		return a.fail(err)
	})
}

func (n *near) Port(c Call, a *Answer) error {
	return with(n, c, func(d rdma.Device) (err error) {
		a.Port, err = d.Port(c.N)
		return a.fail(err)
	})
}

func (n *near) GIDs(c Call, a *Answer) error {
	return with(n, c, func(d rdma.Device) (err error) {
		a.GIDs, err = d.GIDs(c.N)
		return a.fail(err)
	})
}

func (n *near) AllocPD(c Call, a *Answer) error {
	return with(n, c, func(d rdma.Device) error {
		pd, err := d.AllocPD()
		return n.add(pd, err, a)
	})
}

func (n *near) CreateCQ(c Call, a *Answer) error {
	return with(n, c, func(d rdma.Device) error {
		cq, err := d.CreateCQ(c.N)
		return n.add(cq, err, a)
	})
}

func (n *near) Register(c Call, a *Answer) error {
	return with(n, c, func(pd rdma.PD) error {
		mr, err := pd.Register(rdma.Host(n.arena.mem[c.Offset:][:c.Len]), c.Access)
		if err != nil {
			return a.fail(err)
		}
		a.Addr, a.LKey, a.RKey = mr.Addr(), mr.LKey(), mr.RKey()
		return n.add(mr, nil, a)
	})
}

func (n *near) CreateQP(c Call, a *Answer) error {
	return with(n, c, func(pd rdma.PD) error {
		var err error
		if c.Config.SendCQ, err = object[rdma.CQ](n, c.SendCQ); err != nil {
			return err
		}
		if c.Config.RecvCQ, err = object[rdma.CQ](n, c.RecvCQ); err != nil {
			return err
		}
		qp, err := pd.CreateQP(c.Config)
		if err != nil {
			return a.fail(err)
		}
		a.Num = qp.Num()
		return n.add(qp, nil, a)
	})
}

func (n *near) Poll(c Call, a *Answer) error {
	return with(n, c, func(cq rdma.CQ) error {
		wcs := make([]rdma.WC, c.N)
		got, err := cq.Poll(wcs)
		a.WCs = wcs[:got]
		return a.fail(err)
	})
}

func (n *near) Arm(c Call, a *Answer) error {
	return with(n, c, func(cq rdma.CQ) error { return a.fail(cq.Arm(c.Solicited)) })
}

func (n *near) Wait(c Call, a *Answer) error {
	return with(n, c, func(cq rdma.CQ) error {
		ctx, cancel := context.WithTimeout(context.Background(), c.Timeout)
		defer cancel()
		return a.fail(cq.Wait(ctx))
	})
}

func (n *near) State(c Call, a *Answer) error {
	return with(n, c, func(qp rdma.QP) error {
		a.Num = uint32(qp.State())
		return nil
	})
}

func (n *near) Modify(c Call, a *Answer) error {
	return with(n, c, func(qp rdma.QP) error { return a.fail(qp.Modify(c.Attr, c.Mask)) })
}

func (n *near) PostSend(c Call, a *Answer) error {
	return with(n, c, func(qp rdma.QP) (err error) {
		a.N, err = qp.PostSend(c.Send)
		return a.fail(err)
	})
}

func (n *near) PostRecv(c Call, a *Answer) error {
	return with(n, c, func(qp rdma.QP) (err error) {
		a.N, err = qp.PostRecv(c.Recv)
		return a.fail(err)
	})
}

func (n *near) Close(c Call, a *Answer) error {
	return with(n, c, func(o io.Closer) error {
		err := o.Close()
		if err == nil {
			n.mu.Lock()
			defer n.mu.Unlock()
			delete(n.objects, c.Object)
		}
		return a.fail(err)
	})
}
