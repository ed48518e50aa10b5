package cm

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"syscall"

	abi "github.com/culvert-io/culvert/internal/abi/rdmacm"
	"github.com/culvert-io/culvert/internal/dl"
	"github.com/culvert-io/culvert/rdma"
)

// A Listener takes the requests of peers for an address.
type Listener struct {
	id   *id
	addr netip.AddrPort
}

// backlog is how many requests may wait for Accept.
const backlog = 128

// Listen takes requests for an address of an RDMA device. Port 0 means any free one.
func Listen(at netip.AddrPort) (*Listener, error) {
	i, err := newID()
	if err != nil {
		return nil, err
	}
	l := &Listener{id: i}
	if l.addr, err = i.listen(at); err != nil {
		return nil, errors.Join(fmt.Errorf("listen at %v by the connection manager: %w", at, err), i.file.Close())
	}
	return l, nil
}

func (i *id) listen(at netip.AddrPort) (netip.AddrPort, error) {
	bind := &abi.BindIP{Addr: sockaddr(at), ID: i.num}
	if err := do(i, "bind", abi.BIND_IP, bind, 0); err != nil {
		return at, err
	}
	in := &abi.Listen{ID: i.num, Backlog: backlog}
	if err := do(i, "listen", abi.LISTEN, in, 0); err != nil {
		return at, err
	}
	way, err := i.addresses()
	return addrPort(way.Src[:]), err
}

// Addr is where it listens.
func (l *Listener) Addr() netip.AddrPort { return l.addr }

// Close stops listening and rejects pending requests.
func (l *Listener) Close() error { return l.id.file.Close() }

// A Request is a peer that asks for a connection.
type Request struct {
	// Private is what the peer sent with it.
	Private []byte
	// From is the peer's address.
	From netip.AddrPort

	id       *id
	way      abi.Addresses
	reads    [2]int // reads and atomics that the peer wants to have in flight, and allows
	answered bool   // the descriptor is closed, or a Conn's
}

// Accept waits for the next request.
func (l *Listener) Accept(ctx context.Context) (*Request, error) {
	e, err := l.id.expect(ctx, abi.EVENT_CONNECT_REQUEST, "wait for a request")
	if err != nil {
		return nil, err
	}
	i, err := l.take(e.ID)
	if err != nil {
		return nil, err
	}
	r := &Request{Private: private(e), id: i, reads: [2]int{int(e.Param.ResponderResources), int(e.Param.InitiatorDepth)}}
	if r.way, err = i.addresses(); err != nil {
		return nil, errors.Join(err, i.file.Close())
	}
	r.From = addrPort(r.way.Dst[:])
	return r, nil
}

// take gives the identifier of a request a descriptor of its own, so that its events do
// not mix with those of others.
func (l *Listener) take(num uint32) (*id, error) {
	i, err := openID()
	if err != nil {
		return nil, err
	}
	i.num = num
	events := new(abi.ID)
	err = l.id.call(func(from uintptr) error {
		in := &abi.MigrateID{Response: uint64(dl.Ref(events)), ID: num, FD: uint32(from)}
		return do(i, "take a request", abi.MIGRATE_ID, in, sizeOf(events))
	})
	runtime.KeepAlive(events)
	if err != nil {
		return nil, errors.Join(err, i.file.Close())
	}
	return i, nil
}

// maxAnswer and maxRefusal are how much private data fits into an answer.
const (
	maxAnswer  = 196
	maxRefusal = 148
)

// Accept connects a queue pair of dev, new or prepared, with the peer. When it returns, the
// queue pair can send.
func (r *Request) Accept(ctx context.Context, dev rdma.Device, qp rdma.QP, o Options) (*Conn, error) {
	r.answered = true
	if err := r.accept(ctx, dev, qp, o); err != nil {
		return nil, errors.Join(fmt.Errorf("accept %v with QP %#x by the connection manager: %w", r.From, qp.Num(), err), r.id.file.Close())
	}
	return &Conn{id: r.id, Private: r.Private}, nil
}

func (r *Request) accept(ctx context.Context, dev rdma.Device, qp rdma.QP, o Options) error {
	if len(o.Private) > maxAnswer {
		return fmt.Errorf("private data of %d bytes exceeds %d: %w", len(o.Private), maxAnswer, syscall.EINVAL)
	}
	if err := through(dev, r.way); err != nil {
		return err
	}
	o, err := o.on(dev)
	if err != nil {
		return err
	}
	respond, initiate := min(o.RDAtomic, r.reads[0]), min(o.RDAtomic, r.reads[1])
	if err := r.ready(qp, o.Access, respond, initiate); err != nil {
		return err
	}
	in := &abi.Accept{UID: 1, ID: r.id.num, Param: o.param(qp, respond, initiate)}
	if err := do(r.id, "accept", abi.ACCEPT, in, 0); err != nil {
		return err
	}
	_, err = r.id.expect(ctx, abi.EVENT_ESTABLISHED, "wait until the peer is connected")
	return err
}

// ready brings the queue pair to the state in which it can send. The kernel does not know
// yet how many reads may be in flight.
func (r *Request) ready(qp rdma.QP, access rdma.Access, respond, initiate int) error {
	if qp.State() == rdma.Reset {
		if err := r.id.modify(qp, rdma.Init, func(a *rdma.QPAttr) { a.Access = access }); err != nil {
			return err
		}
	}
	if err := r.id.modify(qp, rdma.RTR, func(a *rdma.QPAttr) { a.MaxDestRDAtomic = uint8(respond) }); err != nil {
		return err
	}
	return r.id.modify(qp, rdma.RTS, func(a *rdma.QPAttr) { a.MaxRDAtomic = uint8(initiate) })
}

// Reject refuses the peer, with private data of at most 148 bytes.
func (r *Request) Reject(private []byte) error {
	r.answered = true
	in := &abi.Reject{ID: r.id.num, Reason: abi.REJECT_CONSUMER, PrivateLen: uint8(min(len(private), maxRefusal))}
	copy(in.Private[:maxRefusal], private)
	err := do(r.id, "reject "+r.From.String(), abi.REJECT, in, 0)
	return errors.Join(err, r.id.file.Close())
}

// Close ends a request that was neither accepted nor rejected; afterwards it does nothing.
func (r *Request) Close() {
	if !r.answered {
		r.answered = true
		_ = r.id.file.Close()
	}
}
