package cm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"net/netip"
	"syscall"

	abi "github.com/culvert-io/culvert/internal/abi/rdmacm"
	"github.com/culvert-io/culvert/rdma"
)

// Options are the choices of Dial and Request.Accept.
type Options struct {
	// Private is given to the peer with the request, at most 56 bytes, or with the answer,
	// at most 196.
	Private []byte
	// Access is what the peer may do; 0 means write and read.
	Access rdma.Access
	// RDAtomic is how many reads and atomics may be in flight, each way; 0 means as many
	// as the device can, at most 16.
	RDAtomic int
}

// on returns the options with defaults for a device.
func (o Options) on(dev rdma.Device) (Options, error) {
	o.Access = cmp.Or(o.Access, rdma.RemoteWrite|rdma.RemoteRead)
	attr, err := dev.Attr()
	o.RDAtomic = cmp.Or(o.RDAtomic, min(attr.MaxRDAtomic, 16))
	return o, err
}

// param are the parameters of a request or of its answer.
func (o Options) param(qp rdma.QP, respond, initiate int) abi.ConnParam {
	p := abi.ConnParam{
		QPNum: qp.Num(), PrivateLen: uint8(len(o.Private)), ResponderResources: uint8(respond), InitiatorDepth: uint8(initiate),
		FlowControl: 1, RetryCount: 7, RNRRetryCount: 7, Valid: 1,
	}
	copy(p.Private[:], o.Private)
	return p
}

// maxPrivate is how much private data fits into a request beside the addresses.
const maxPrivate = 56

// A Conn is a connected queue pair in the eyes of the connection manager.
type Conn struct {
	id *id
	// Private is what the peer sent with its answer.
	Private []byte
}

// A RejectedError is a peer that did not accept.
type RejectedError struct {
	Reason  int // of the connection manager; 28 is the peer's own
	Private []byte
}

func (e *RejectedError) Error() string {
	const noListener, consumer = 8, 28
	switch e.Reason {
	case noListener:
		return "rejected: no service listens there"
	case consumer:
		return "rejected by the peer"
	}
	return fmt.Sprintf("rejected: reason %d", e.Reason)
}

// Dial connects a queue pair of dev, new or prepared (see [rdma.Prepare]), with a peer that
// listens at an address. When it returns, the queue pair can send.
func Dial(ctx context.Context, to netip.AddrPort, dev rdma.Device, qp rdma.QP, o Options) (*Conn, error) {
	c, err := dial(ctx, to, dev, qp, o)
	if err != nil {
		return nil, fmt.Errorf("connect QP %#x to %v by the connection manager: %w", qp.Num(), to, err)
	}
	return c, nil
}

func dial(ctx context.Context, to netip.AddrPort, dev rdma.Device, qp rdma.QP, o Options) (c *Conn, err error) {
	if len(o.Private) > maxPrivate {
		return nil, fmt.Errorf("private data of %d bytes exceeds %d: %w", len(o.Private), maxPrivate, syscall.EINVAL)
	}
	if o, err = o.on(dev); err != nil {
		return nil, err
	}
	i, err := newID()
	if err != nil {
		return nil, err
	}
	if c, err = i.connect(ctx, to, dev, qp, o); err != nil {
		return nil, errors.Join(err, i.file.Close())
	}
	return c, nil
}

func (i *id) connect(ctx context.Context, to netip.AddrPort, dev rdma.Device, qp rdma.QP, o Options) (*Conn, error) {
	way, err := i.resolve(ctx, to)
	if err != nil {
		return nil, err
	}
	if err := through(dev, way); err != nil {
		return nil, err
	}
	if qp.State() == rdma.Reset {
		if err := i.modify(qp, rdma.Init, func(a *rdma.QPAttr) { a.Access = o.Access }); err != nil {
			return nil, err
		}
	}
	answer, err := i.ask(ctx, qp, o)
	if err != nil {
		return nil, err
	}
	same := func(*rdma.QPAttr) {}
	if err := i.modify(qp, rdma.RTR, same); err != nil {
		return nil, err
	}
	if err := i.modify(qp, rdma.RTS, same); err != nil {
		return nil, err
	}
	// Tells the peer that it may send.
	ready := &abi.Accept{UID: 1, ID: i.num}
	if err := do(i, "accept", abi.ACCEPT, ready, 0); err != nil {
		return nil, err
	}
	return &Conn{i, answer}, nil
}

// through returns an error unless the way leads through dev.
func through(dev rdma.Device, way abi.Addresses) error {
	if guid := bits.ReverseBytes64(way.NodeGUID); guid != dev.Info().GUID {
		return fmt.Errorf("the way leads through the device with GUID %#x, not through %s with %#x (fix: use that device)", guid, dev.Info().Name, dev.Info().GUID)
	}
	return nil
}

// ask sends the request and returns the private data of the answer.
func (i *id) ask(ctx context.Context, qp rdma.QP, o Options) ([]byte, error) {
	in := &abi.Connect{ID: i.num, Param: o.param(qp, o.RDAtomic, o.RDAtomic)}
	if err := do(i, "request", abi.CONNECT, in, 0); err != nil {
		return nil, err
	}
	e, err := i.expect(ctx, abi.EVENT_CONNECT_RESPONSE, "request")
	if err != nil {
		return nil, err
	}
	return private(e), nil
}

func private(e *abi.Event) []byte {
	return append([]byte(nil), e.Param.Private[:e.Param.PrivateLen]...)
}

// failure is the error in an event.
func failure(e *abi.Event) error {
	status := int32(e.Status)
	switch e.Event {
	case abi.EVENT_REJECTED:
		return &RejectedError{int(status), private(e)}
	case abi.EVENT_ADDR_ERROR, abi.EVENT_ROUTE_ERROR, abi.EVENT_CONNECT_ERROR:
		if status < 0 {
			return syscall.Errno(-status)
		}
	case abi.EVENT_UNREACHABLE:
		return fmt.Errorf("the peer does not answer: %w", syscall.EHOSTUNREACH)
	case abi.EVENT_DEVICE_REMOVAL:
		return fmt.Errorf("the device was removed: %w", syscall.ENODEV)
	}
	return fmt.Errorf("unexpected event %d with status %d", e.Event, status)
}

// Read waits until the peer disconnects, and returns io.EOF then. There is no data.
func (c *Conn) Read([]byte) (int, error) {
	for {
		e, err := c.id.event(context.Background())
		switch {
		case err != nil:
			return 0, err
		case e.Event == abi.EVENT_DISCONNECTED || e.Event == abi.EVENT_TIMEWAIT_EXIT:
			return 0, io.EOF
		case e.Event != abi.EVENT_ESTABLISHED:
			return 0, failure(e)
		}
	}
}

// Close disconnects. The queue pair goes to the error state on the peer's side; this
// side's is the caller's.
func (c *Conn) Close() error {
	in := &abi.Disconnect{ID: c.id.num}
	// It fails if the peer was first.
	_ = do(c.id, "disconnect", abi.DISCONNECT, in, 0)
	return c.id.file.Close()
}
