package remote

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/limit"
	"github.com/culvert-io/culvert/rdma"
)

// A ClientConfig says how to reach a server.
type ClientConfig struct {
	Addr   string // host:port
	Device rdma.Device
	Token  []byte
	TLS    *tls.Config // nil means none
	Chunk  int         // bytes of a task; 0 means as many as the server allows
	Depth  int         // tasks in flight; 0 means 8
	// Tries is how often a lost connection is made again before a request fails; 0
	// means 5. The pause before the n-th attempt is Pause × 2^n; 0 means 100 ms.
	Tries int
	Pause time.Duration
	// Dial connects; nil means TCP.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Log is called when a connection is lost, and when GPU memory is registered; it may be
	// nil.
	Log func(format string, args ...any)
	// Register says how GPU memory is registered; nil means by the built-in order.
	Register func(gpu.Info) rdma.GPUOptions
	// Refuse are methods by which it is not registered.
	Refuse []rdma.Method
}

// A Client reads and writes files of a server. It is safe for concurrent use. A lost
// connection is made again, and the requests that were in flight are repeated.
type Client struct {
	cfg ClientConfig
	pd  rdma.PD

	mu     sync.Mutex // held while connecting
	link   *link
	closed bool
	lost   int // connections
}

// Dial connects to a server.
func Dial(ctx context.Context, cfg ClientConfig) (*Client, error) {
	cfg.Depth = cmp.Or(cfg.Depth, 8)
	cfg.Tries = cmp.Or(cfg.Tries, 5)
	cfg.Pause = cmp.Or(cfg.Pause, 100*time.Millisecond)
	if cfg.Dial == nil {
		cfg.Dial = new(net.Dialer).DialContext
	}
	if cfg.Log == nil {
		cfg.Log = func(string, ...any) {}
	}
	pd, err := cfg.Device.AllocPD()
	if err != nil {
		return nil, err
	}
	c := &Client{cfg: cfg, pd: pd}
	if c.link, err = c.connect(ctx); err != nil {
		return nil, errors.Join(&LostError{cfg.Addr, 1, err}, pd.Close())
	}
	return c, nil
}

// Addr is the address of the server.
func (c *Client) Addr() string { return c.cfg.Addr }

// Provider names the provider that moves the data.
func (c *Client) Provider() string { return c.cfg.Device.Provider() }

// PD is the protection domain in which memory for transfers must be registered.
func (c *Client) PD() rdma.PD { return c.pd }

// Lost is how many connections were lost.
func (c *Client) Lost() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost
}

// Close ends the connection. Memory must have been deregistered.
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.link != nil {
		c.link.close(net.ErrClosed)
	}
	return c.pd.Close()
}

// connect makes a connection.
func (c *Client) connect(ctx context.Context) (*link, error) {
	ctx, cancel := context.WithTimeout(ctx, greetTime)
	defer cancel()
	conn, err := c.cfg.Dial(ctx, "tcp", c.cfg.Addr)
	if err != nil {
		return nil, err
	}
	if c.cfg.TLS != nil {
		conn = tls.Client(conn, c.cfg.TLS)
	}
	l, err := newLink(ctx, c, conn)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return l, nil
}

// current returns the connection, and makes a new one if the last was lost.
func (c *Client) current(ctx context.Context) (*link, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, net.ErrClosed
	}
	if c.link != nil && c.link.alive() {
		return c.link, nil
	}
	if c.link != nil {
		c.lost++
		c.cfg.Log("connection to %s lost: %v; connecting again, provider=%s", c.cfg.Addr, c.link.err, c.Provider())
		c.link.close(nil)
		c.link = nil
	}
	l, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	c.link = l
	return l, nil
}

// do sends the request that make returns for a connection and waits for the answer. It
// starts again on a new connection if one is lost.
func (c *Client) do(ctx context.Context, make func(context.Context, *link) (*request, error)) (reply, error) {
	var last error
	for try := range c.cfg.Tries {
		if try > 1 { // the first attempt after a loss is at once
			if err := limit.Sleep(ctx, c.cfg.Pause<<(try-1)); err != nil {
				return reply{}, err
			}
		}
		r, err := c.attempt(ctx, make)
		if err == nil || !retryable(ctx, err) {
			return r, err
		}
		last = err
	}
	return reply{}, &LostError{c.cfg.Addr, c.cfg.Tries, last}
}

func (c *Client) attempt(ctx context.Context, make func(context.Context, *link) (*request, error)) (reply, error) {
	l, err := c.current(ctx)
	if err != nil {
		return reply{}, err
	}
	req, err := make(ctx, l)
	if err != nil {
		return reply{}, err
	}
	r, err := l.call(ctx, req)
	if err == nil && r.Status == Unreached {
		err = fail(r, req.Op, req.Name)
		l.close(err)
	}
	return r, err
}

// retryable tells a lost connection from an answer, and from a peer that will answer
// the same again.
func retryable(ctx context.Context, err error) bool {
	if ctx.Err() != nil || errors.Is(err, ErrToken) || errors.Is(err, errForeign) || errors.Is(err, net.ErrClosed) {
		return false
	}
	e, answered := errors.AsType[*Error](err)
	return !answered || e.Status == Unreached
}

// fail is the error of a negative answer.
func fail(r reply, what op, name string) error {
	if r.Status == OK {
		return nil
	}
	return &Error{Op: what.String(), Name: name, Status: r.Status, Reason: r.Reason}
}

var errLost = errors.New("the server closed the connection")

// lostBecause hides net.ErrClosed of the other end of a link, which is not that of the
// client.
func lostBecause(err error) error { return fmt.Errorf("%w: %v", errLost, err) }
