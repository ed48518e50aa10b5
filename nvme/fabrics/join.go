package fabrics

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"

	abi "github.com/culvert-io/culvert/internal/abi/nvmf"
	"github.com/culvert-io/culvert/rdma"
	"github.com/culvert-io/culvert/rdma/cm"
)

// Answers to a connection request, before their private data.
const (
	cmAccept = 'A'
	cmReject = 'R'
)

// A RejectedError is a queue that the target did not accept.
type RejectedError struct{ Reason string }

func (e *RejectedError) Error() string { return "the target rejects the queue: " + e.Reason }

// join asks the target for a queue and connects the queue pair with it.
func (c *Controller) join(ctx context.Context, p *queuePair, req abi.RDMARequest) (io.ReadCloser, error) {
	if c.cfg.Addr.IsValid() {
		return joinByManager(ctx, c.cfg.Addr, p, req)
	}
	conn, err := c.cfg.Dial(ctx)
	if err != nil {
		return nil, err
	}
	if _, err = request(conn, req); err == nil {
		_, err = rdma.Establish(ctx, conn, p.Dev, p.QP, queueOptions)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// joinByManager uses the kernel's connection manager, whose private data the requests and
// answers are.
func joinByManager(ctx context.Context, to netip.AddrPort, p *queuePair, req abi.RDMARequest) (io.ReadCloser, error) {
	conn, err := cm.Dial(ctx, to, p.Dev, p.QP, cm.Options{Private: abi.Encode(&req), Access: queueOptions.Access})
	if r, ok := errors.AsType[*cm.RejectedError](err); ok && len(r.Private) >= abi.RDMARejectSize {
		if why, derr := abi.Decode[abi.RDMAReject](r.Private[:abi.RDMARejectSize]); derr == nil && why.Status != 0 {
			return nil, &RejectedError{why.Status.String()}
		}
	}
	if err != nil {
		return nil, err
	}
	return conn, nil
}

// request asks for a queue and returns the receive queue size of the target.
func request(conn net.Conn, req abi.RDMARequest) (int, error) {
	if _, err := conn.Write(abi.Encode(&req)); err != nil {
		return 0, err
	}
	var kind [1]byte
	if _, err := io.ReadFull(conn, kind[:]); err != nil {
		return 0, err
	}
	switch kind[0] {
	case cmAccept:
		a, err := receive[abi.RDMAAccept](conn, abi.RDMAAcceptSize)
		return int(a.CRQSize), err
	case cmReject:
		r, err := receive[abi.RDMAReject](conn, abi.RDMARejectSize)
		if err != nil {
			return 0, err
		}
		return 0, &RejectedError{r.Status.String()}
	}
	return 0, fmt.Errorf("the peer answers %q: it is no NVMe target", kind[0])
}

func receive[S abi.Struct](conn net.Conn, n int) (S, error) {
	b := make([]byte, n)
	if _, err := io.ReadFull(conn, b); err != nil {
		var zero S
		return zero, err
	}
	return abi.Decode[S](b)
}
