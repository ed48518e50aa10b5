package nvmerdma

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/culvert-io/culvert/rdma"
	"github.com/culvert-io/culvert/rdma/tcp"
)

const (
	requests = 16               // that use a session at a time, each with a namespace
	timeout  = 30 * time.Second // Linux's, for a command
)

// A session is a target on another host, and the connection with it.
type session struct {
	host   rdma.Device // the adapter
	ctrl   Controller
	target target
	idle   chan *file

	users int // requests; guarded by Module.link
}

// A target is the other host. It has no adapter on this machine's fabric: what it moves
// in its own memory is not counted here.
type target struct {
	dev    rdma.Device
	listen *listener
	cancel context.CancelFunc
	served chan error
}

// newSession starts a target and connects the adapter with it.
func newSession(fab Fabrics, host rdma.Device) (s *session, err error) {
	s = &session{host: host, idle: make(chan *file, requests)}
	var backings []Backing
	for i := range requests {
		f := &file{id: uint32(i + 1)}
		backings = append(backings, f)
		s.idle <- f
	}
	if err := s.target.start(fab, backings); err != nil {
		return nil, errors.Join(err, host.Close())
	}
	if s.ctrl, err = fab.Connect(context.Background(), host, s.target.listen.dial); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (t *target) start(fab Fabrics, backings []Backing) error {
	p, err := tcp.New(tcp.Config{})
	if err != nil {
		return err
	}
	if t.dev, err = p.Open(""); err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return errors.Join(err, t.dev.Close())
	}
	t.listen = &listener{Listener: l, open: map[net.Conn]bool{}}
	ctx, cancel := context.WithCancel(context.Background())
	t.cancel, t.served = cancel, make(chan error, 1)
	go func() { t.served <- fab.Serve(ctx, t.listen, t.dev, backings) }()
	return nil
}

// close ends the connection, and then the target: when it returns, no command is executed.
func (s *session) close() error {
	var err error
	if s.ctrl != nil {
		err = s.ctrl.Close()
	}
	s.target.cancel()
	err = errors.Join(err, <-s.target.served, s.target.dev.Close(), s.host.Close())
	if err != nil {
		return fmt.Errorf("nvme_rdma: end the connection: %w", err)
	}
	return nil
}

// A listener remembers connections, so that they can be cut.
type listener struct {
	net.Listener
	mu   sync.Mutex
	open map[net.Conn]bool
}

func (l *listener) dial(ctx context.Context) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", l.Addr().String())
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[c] = true
	return c, nil
}

// cut ends all connections, as a network that fails does.
func (l *listener) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		c.Close()
	}
	clear(l.open)
}
