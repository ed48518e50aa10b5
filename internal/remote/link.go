package remote

import (
	"bufio"
	"context"
	"net"
	"sync"
	"time"

	"github.com/culvert-io/culvert/rdma"
)

// A link is one connection of a client: the stream for requests and replies, and the
// queue pair by which the server reaches registered memory.
type link struct {
	conn net.Conn
	cq   rdma.CQ
	qp   rdma.QP

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
	if l.cq, err = c.cfg.Device.CreateCQ(16); err != nil {
		return nil, err
	}
	if l.qp, err = c.pd.CreateQP(rdma.QPConfig{SendCQ: l.cq, RecvCQ: l.cq}); err != nil {
		l.cq.Close()
		return nil, err
	}
	if _, err = rdma.Establish(ctx, conn, c.cfg.Device, l.qp, rdma.Options{Access: rdma.RemoteWrite | rdma.RemoteRead}); err != nil {
		l.qp.Close()
		l.cq.Close()
		return nil, err
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return nil, err
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

// end marks the connection as lost; the first cause counts. It ends all calls.
func (l *link) end(err error) {
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
	if err == nil {
		err = errLost
	}
	l.end(err)
	l.closing.Do(func() {
		<-l.reader
		_ = l.qp.Close()
		_ = l.cq.Close()
	})
}

// replies gives replies to the calls that wait for them.
func (l *link) replies() {
	defer close(l.reader)
	r := bufio.NewReader(l.conn)
	for {
		b, err := readFrame(r)
		if err != nil {
			l.end(lostBecause(err))
			return
		}
		rep, err := parseReply(b)
		if err != nil {
			l.end(err)
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
		l.end(lostBecause(err))
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
