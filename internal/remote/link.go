package remote

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/culvert-io/culvert/internal/endpoint"
	"github.com/culvert-io/culvert/rdma"
)

// A link is one connection of a client: the stream for requests and replies, and the
// queue pair by which the server reaches registered memory.
type link struct {
	conn net.Conn
	end  *endpoint.Endpoint // without memory

	out sync.Mutex // of requests

	mu      sync.Mutex
	next    uint64
	pending map[uint64]chan reply
	err     error // why it ended
	ended   chan struct{}
	reader  chan struct{} // closed when the reader is gone
	closing sync.Once
}

func newLink(ctx context.Context, c *Client, conn net.Conn) (l *link, err error) {
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return nil, err
		}
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if err := greet(conn, c.cfg.Token, false); err != nil {
		return nil, err
	}
	l = &link{conn: conn, pending: map[uint64]chan reply{}, ended: make(chan struct{}), reader: make(chan struct{})}
	if l.end, err = endpoint.New(c.cfg.Device, endpoint.Config{PD: c.pd, Completions: 16}); err != nil {
		return nil, err
	}
	_, err = rdma.Establish(ctx, conn, c.cfg.Device, l.end.QP, rdma.Options{Access: rdma.RemoteWrite | rdma.RemoteRead})
	if err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	if err != nil {
		return nil, errors.Join(err, l.end.Close())
	}
	go l.replies()
	return l, nil
}

// alive reports whether the connection has not ended.
func (l *link) alive() bool {
	select {
	case <-l.ended:
		return false
	default:
		return true
	}
}

// fail marks the connection as lost; the first cause counts. It ends all calls.
func (l *link) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = err
		close(l.ended)
		l.conn.Close()
	}
}

// close ends the connection and its queue pair: when it returns, the server no longer
// reaches any memory through it.
func (l *link) close(err error) {
	l.fail(cmp.Or(err, errLost))
	l.closing.Do(func() {
		<-l.reader
		_ = l.end.Close()
	})
}

// replies gives replies to the calls that wait for them.
func (l *link) replies() {
	defer close(l.reader)
	r := bufio.NewReader(l.conn)
	for {
		b, err := readFrame(r)
		if err != nil {
			l.fail(lostBecause(err))
			return
		}
		rep, err := parseReply(b)
		if err != nil {
			l.fail(err)
			return
		}
		l.mu.Lock()
		ch := l.pending[rep.ID]
		delete(l.pending, rep.ID)
		l.mu.Unlock()
		if ch != nil {
			ch <- rep
		}
	}
}

// call sends a request and waits for its reply. If there is none, the connection is
// closed before call returns: the server may be about to write into memory that the
// caller will reuse.
func (l *link) call(ctx context.Context, req *request) (reply, error) {
	ch := make(chan reply, 1)
	l.mu.Lock()
	l.next++
	req.ID = l.next
	l.pending[req.ID] = ch
	l.mu.Unlock()
	l.out.Lock()
	_, err := l.conn.Write(appendRequest(nil, req))
	l.out.Unlock()
	if err != nil {
		l.fail(lostBecause(err))
	}
	select {
	case r := <-ch:
		return r, nil
	case <-l.ended:
		l.close(nil)
		return reply{}, l.err
	case <-ctx.Done():
		l.close(context.Cause(ctx))
		return reply{}, context.Cause(ctx)
	}
}
