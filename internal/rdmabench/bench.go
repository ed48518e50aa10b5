package rdmabench

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/culvert-io/culvert/internal/abi/perftest"
	"github.com/culvert-io/culvert/internal/endpoint"
	"github.com/culvert-io/culvert/rdma"
)

// A Config describes a test. Both ends must have the same.
type Config struct {
	Op         rdma.Opcode // OpWrite, OpRead or OpSend
	Size       uint32      // bytes of a request
	Iterations int
	Depth      int // requests in flight
}

// Check returns an error for values that cannot be measured.
func (c Config) Check() error {
	switch {
	case c.Op != rdma.OpWrite && c.Op != rdma.OpRead && c.Op != rdma.OpSend:
		return fmt.Errorf("operation %v: must be WRITE, READ or SEND", c.Op)
	case c.Size < 1 || c.Size > 1<<30:
		return fmt.Errorf("size %d must be 1 byte to 1 GiB", c.Size)
	case c.Iterations < 1:
		return fmt.Errorf("%d iterations: must be at least 1", c.Iterations)
	case c.Depth < 1 || c.Depth > 8192:
		return fmt.Errorf("depth %d must be 1 to 8192", c.Depth)
	}
	return nil
}

// Run measures the bandwidth to the peer at the other end of conn. Both ends return the
// client's result; of messages, each returns what it has seen. It closes nothing.
func Run(ctx context.Context, conn net.Conn, client bool, dev rdma.Device, cfg Config) (r perftest.Report, err error) {
	err = run(ctx, conn, client, dev, cfg, func(e *end, s *session) (err error) {
		if cfg.Op == rdma.OpSend {
			r, err = e.messages(ctx, s)
		} else {
			r, err = e.oneSided(ctx, s)
		}
		return err
	})
	return r, err
}

// run connects both ends, has them do their part, and disconnects.
func run(ctx context.Context, conn net.Conn, client bool, dev rdma.Device, cfg Config, part func(*end, *session) error) (err error) {
	if err := cfg.Check(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	x := newExchange(conn, client)
	port, err := dev.Port(1)
	if err != nil {
		return err
	}
	cycle, mtu, err := x.greet(port.ActiveMTU)
	if err != nil {
		return ctxErr(ctx, err)
	}
	e, err := newEnd(dev, cfg, cycle)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	return ctxErr(ctx, e.test(x, port, mtu, part))
}

func ctxErr(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return errors.Join(ctx.Err(), err)
	}
	return err
}

// An end is one side of a test.
type end struct {
	*endpoint.Endpoint
	cfg Config
}

// newEnd makes the objects. Clients step through two cycles of the server's memory.
func newEnd(dev rdma.Device, cfg Config, cycle uint32) (*end, error) {
	e, err := endpoint.New(dev, endpoint.Config{
		Completions: cfg.Depth, Caps: rdma.QPCaps{SendWR: cfg.Depth, RecvWR: cfg.Depth, SendSGE: 1, RecvSGE: 1},
		Bytes: 2 * max(int(cfg.Size), int(cycle)), Access: rdma.LocalWrite | rdma.RemoteWrite | rdma.RemoteRead,
	})
	if err != nil {
		return nil, err
	}
	clear(e.Mem.Bytes) // no page fault is measured
	return &end{e, cfg}, nil
}

// A session is a test between two connected queue pairs.
type session struct {
	*exchange
	own, peer perftest.Endpoint
}

// barrier waits until the peer has come as far.
func (s *session) barrier(what string) error {
	if _, err := s.endpoint(s.own); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// test follows the order that package perftest describes.
func (e *end) test(x *exchange, port rdma.PortAttr, mtu rdma.MTU, part func(*end, *session) error) error {
	own, peer, err := e.connect(x, port, mtu)
	if err != nil {
		return err
	}
	s := &session{x, own, peer}
	if err := errors.Join(s.barrier("wait until the peer is connected"), s.barrier("wait until the peer is ready")); err != nil {
		return err
	}
	if err := part(e, s); err != nil {
		return err
	}
	if err := s.barrier("wait until the peer has the result"); err != nil {
		return err
	}
	_, err = x.conn.Write([]byte(perftest.Done))
	return err
}

// oneSided has the client measure, and the server learn the result.
func (e *end) oneSided(ctx context.Context, s *session) (r perftest.Report, err error) {
	if s.client {
		if r, err = e.requests(s.peer).measure(ctx); err != nil {
			return r, err
		}
	}
	if err := s.barrier("wait for the end of the test"); err != nil {
		return r, err
	}
	theirs, err := s.report(r)
	if !s.client {
		r = theirs
	}
	return r, err
}

// messages has the server post receives before the client sends. Each end measures.
func (e *end) messages(ctx context.Context, s *session) (r perftest.Report, err error) {
	if s.client {
		if err := s.barrier("wait until the peer receives"); err != nil {
			return r, err
		}
		return e.requests(s.peer).measure(ctx)
	}
	f := e.receives()
	if err := errors.Join(f.fill(0), s.barrier("wait until the peer sends")); err != nil {
		return r, err
	}
	watched, over := s.watch(ctx)
	r, err = f.measure(watched)
	return r, over(err)
}

// connect exchanges queue pairs and connects them.
func (e *end) connect(x *exchange, port rdma.PortAttr, mtu rdma.MTU) (own, peer perftest.Endpoint, err error) {
	table, err := e.Dev.GIDs(1)
	if err != nil {
		return own, peer, err
	}
	choice, err := rdma.ChooseGID(table, port.Link, rdma.GIDWant{})
	if err != nil {
		return own, peer, err
	}
	attr, err := e.Dev.Attr()
	if err != nil {
		return own, peer, err
	}
	reads := 1
	if e.cfg.Op == rdma.OpRead {
		reads = min(attr.MaxRDAtomic, 255)
	}
	var psn [4]byte
	_, _ = rand.Read(psn[1:]) // never fails
	own = perftest.Endpoint{
		LID: port.LID, OutReads: uint16(reads), QPN: e.QP.Num(), PSN: binary.BigEndian.Uint32(psn[:]), Rkey: e.Mem.RKey(), VAddr: e.Mem.Addr(), GID: choice.GID,
	}
	if peer, err = x.endpoint(own); err != nil {
		return own, peer, err
	}
	info := func(p perftest.Endpoint) rdma.QPInfo {
		return rdma.QPInfo{QPNum: p.QPN, PSN: p.PSN, LID: p.LID, MTU: mtu, RDAtomic: uint8(min(p.OutReads, 255)), GID: p.GID}
	}
	return own, peer, rdma.Connect(e.QP, info(own), info(peer), choice, rdma.Options{})
}
