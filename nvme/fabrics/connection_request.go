package fabrics

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	abi "github.com/culvert-io/culvert/internal/abi/nvmf"
	"github.com/culvert-io/culvert/rdma"
	"github.com/culvert-io/culvert/rdma/cm"
)

// A connRequest is a host that asks a target for a queue: over a stream, or by the kernel's
// connection manager.
type connRequest interface {
	from() string
	request() (abi.RDMARequest, error)
	reject(status abi.RDMAStatus) error
	// accept connects the queue pair. What it returns ends with the queue.
	accept(ctx context.Context, q *targetQueue) (io.ReadCloser, error)
	// end is called last.
	end()
}

// targetOptions: hosts reach no memory of a target.
var targetOptions = rdma.Options{Access: rdma.LocalWrite}

type streamRequest struct {
	net.Conn
	unwatch func() bool // the context of the target
}

func (a streamRequest) end() {
	a.unwatch()
	_ = a.Close()
}

func (a streamRequest) from() string { return a.RemoteAddr().String() }

func (a streamRequest) request() (abi.RDMARequest, error) {
	if err := a.SetDeadline(time.Now().Add(connectTime)); err != nil {
		return abi.RDMARequest{}, err
	}
	return receive[abi.RDMARequest](a, abi.RDMARequestSize)
}

func (a streamRequest) reject(status abi.RDMAStatus) error {
	_, err := a.Write(append([]byte{cmReject}, abi.Encode(&abi.RDMAReject{Status: status})...))
	return err
}

func (a streamRequest) accept(ctx context.Context, q *targetQueue) (io.ReadCloser, error) {
	answer := abi.RDMAAccept{CRQSize: uint16(q.depth)}
	if _, err := a.Write(append([]byte{cmAccept}, abi.Encode(&answer)...)); err != nil {
		return nil, err
	}
	if _, err := rdma.Establish(ctx, a, q.Dev, q.QP, targetOptions); err != nil {
		return nil, err
	}
	return a, a.SetDeadline(time.Time{})
}

type managerRequest struct{ *cm.Request }

func (a managerRequest) end() { a.Close() }

func (a managerRequest) from() string { return a.From.String() }

func (a managerRequest) request() (abi.RDMARequest, error) {
	return abi.Decode[abi.RDMARequest](a.Private)
}

func (a managerRequest) reject(status abi.RDMAStatus) error {
	return a.Reject(abi.Encode(&abi.RDMAReject{Status: status}))
}

func (a managerRequest) accept(ctx context.Context, q *targetQueue) (io.ReadCloser, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	answer := abi.RDMAAccept{CRQSize: uint16(q.depth)}
	conn, err := a.Accept(ctx, q.Dev, q.QP, cm.Options{Private: abi.Encode(&answer), Access: targetOptions.Access})
	if err != nil {
		return nil, err
	}
	return conn, nil
}

// Serve accepts queues over streams until ctx ends, and returns when all of them are gone.
func (t *Target) Serve(ctx context.Context, l net.Listener) error {
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	return t.serve(ctx, func(ctx context.Context) (connRequest, error) {
		conn, err := l.Accept()
		if err != nil {
			return nil, fmt.Errorf("accept on %v: %w", l.Addr(), err)
		}
		return streamRequest{conn, context.AfterFunc(ctx, func() { conn.Close() })}, nil
	})
}

// ServeManager is Serve for hosts that come by the kernel's connection manager, as Linux's
// does. The device must be of rdma/ibverbs, and have the listener's address.
func (t *Target) ServeManager(ctx context.Context, l *cm.Listener) error {
	return t.serve(ctx, func(ctx context.Context) (connRequest, error) {
		r, err := l.Accept(ctx)
		if err != nil {
			return nil, fmt.Errorf("accept on %v: %w", l.Addr(), err)
		}
		return managerRequest{r}, nil
	})
}

func (t *Target) serve(outer context.Context, next func(context.Context) (connRequest, error)) error {
	ctx, cancel := context.WithCancel(outer)
	defer t.wg.Wait()
	defer cancel()
	for {
		a, err := next(ctx)
		if outer.Err() != nil {
			if err == nil {
				a.end()
			}
			return nil
		}
		if err != nil {
			return err
		}
		t.wg.Go(func() {
			defer a.end()
			if err := t.queue(ctx, a); err != nil && ctx.Err() == nil {
				t.cfg.Log("%s: %v, provider=%s", a.from(), err, t.cfg.Device.Provider())
			}
		})
	}
}

// queue serves one queue of a host.
func (t *Target) queue(ctx context.Context, a connRequest) error {
	refuse := func(status abi.RDMAStatus, why error) error {
		return errors.Join(fmt.Errorf("rejected, %v: %w", status, why), a.reject(status))
	}
	req, err := a.request()
	if err != nil {
		return refuse(abi.RDMA_CM_INVALID_LEN, err)
	}
	if status := t.judge(&req); status != 0 {
		return refuse(status, fmt.Errorf("queue %d, sizes %d and %d", req.QID, req.HSQSize, req.HRQSize))
	}
	q, err := newTargetQueue(t, &req, a.from())
	if err != nil {
		return refuse(abi.RDMA_CM_NO_RSC, err)
	}
	defer q.end()
	if q.conn, err = a.accept(ctx, q); err != nil {
		return err
	}
	return q.run(ctx)
}
