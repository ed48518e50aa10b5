package verbs

import (
	"cmp"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

var errCut = errors.New("the connection is not the queue pair's any more")

// A conn is a connection of a queue pair.
type conn struct {
	q   *QP
	c   net.Conn
	raw syscall.RawConn // nil with TLS

	track net.Conn // what the device tracks: c, or the connection below TLS

	memory sync.RWMutex // held for reading while memory moves
	dead   bool         // no memory moves any more

	out     sync.Mutex // of the thread that writes
	frame   frame
	pending atomic.Bool   // there is something to write
	wake    chan struct{} // a token: the writer has to wait for the socket
	done    chan struct{} // closed by cut

	// lingering: the queue pair has failed; last is sent, the rest is discarded.
	lingering atomic.Bool
	last      header

	in input
}

// A frame is being written.
type frame struct {
	active bool
	h      header
	bytes  [headerSize]byte
	head   []byte // of bytes, not written yet
	list   list
	failed bool // the rest is zeroes, because the memory is gone
}

func (f *frame) begin(h header) {
	f.active, f.failed, f.h = true, false, h
	h.put(&f.bytes)
	f.head = f.bytes[:]
	f.list.reset()
}

func newConn(q *QP, c net.Conn) *conn {
	x := &conn{q: q, c: c, wake: make(chan struct{}, 1), done: make(chan struct{})}
	if t, ok := c.(*net.TCPConn); ok {
		x.raw, _ = t.SyscallConn() // fails only if c is closed, which a read reports
	}
	x.in.buf = make([]byte, inputSize)
	return x
}

// start runs the connection until it ends.
func (c *conn) start() {
	d := c.q.dev
	d.tasks.Go(func() {
		defer d.untrack(c.track)
		c.read()
	})
	d.tasks.Go(c.write)
}

// cut ends the connection. When it returns, no memory moves. The caller has QP.mu.
func (c *conn) cut() {
	c.memory.Lock()
	was := c.dead
	c.dead = true
	c.memory.Unlock()
	if !was {
		close(c.done)
	}
	_ = c.c.Close() // the reader ends
}

// lingerTime is how long a failed connection waits for its peer to read the reason.
const lingerTime = 2 * time.Second

// linger ends the movement of memory and has the last header written. Closing at once
// could destroy it on the way, because unread data resets a connection.
func (c *conn) linger() {
	c.lingering.Store(true)
	c.memory.Lock()
	c.dead = true
	c.memory.Unlock()
	_ = c.c.SetDeadline(time.Now().Add(lingerTime))
}

// next makes the next frame.
func (c *conn) next() bool {
	q := c.q
	q.mu.Lock()
	defer q.mu.Unlock()
	if c.lingering.Load() {
		if c.last.kind == 0 {
			return false
		}
		c.frame.begin(c.last)
		c.last = header{}
		return true
	}
	return q.conn == c && (q.nextAnswer(&c.frame) || q.nextRequest(&c.frame))
}

// kick writes what can be written without waiting; the writer does the rest.
func (c *conn) kick() {
	c.pending.Store(true)
	for c.pending.Load() && c.out.TryLock() {
		c.pending.Store(false)
		again := c.flush(false)
		c.out.Unlock()
		if again {
			select {
			case c.wake <- struct{}{}:
			default:
			}
			return
		}
	}
}

// write is the writer.
func (c *conn) write() {
	for {
		select {
		case <-c.done:
			return
		case <-c.wake:
		}
		c.out.Lock()
		c.flush(true)
		c.out.Unlock()
		if c.pending.Load() {
			c.kick()
		}
	}
}

// flush writes frames. It reports whether it stopped because the socket is full.
func (c *conn) flush(wait bool) (again bool) {
	for {
		f := &c.frame
		if !f.active && !c.next() {
			return false
		}
		again, err := c.push(f, wait)
		switch {
		case errors.Is(err, errGone):
			c.gone(f)
			continue
		case err != nil:
			f.active = false
			_ = c.c.Close() // the reader reports it
			return false
		case again:
			return true
		}
		if len(f.head) == 0 && f.list.left == 0 {
			f.active = false
			c.sent(f)
		}
	}
}

// sent follows a frame.
func (c *conn) sent(f *frame) {
	n := &c.q.dev.counters
	n.sentFrames.Add(1)
	n.sentBytes.Add(uint64(f.h.follows()))
	c.q.send.progress.Add(1)
	if f.failed {
		c.q.readGone(c, f.h.msn)
	}
}

// gone handles memory that went away before or while a frame was written.
func (c *conn) gone(f *frame) {
	started := len(f.head) < headerSize
	_, isRequest := f.h.kind.op()
	lingering := c.lingering.Load()
	switch {
	case lingering && !started:
		f.active = false
	case isRequest && !lingering:
		f.active = false
		c.q.sourceGone(c, f.h.msn, started)
	case !started:
		f.active = false
		c.q.readGone(c, f.h.msn)
	default: // the peer must get as many bytes as were announced, or it misses the reason
		f.failed = true
		left := f.list.left
		f.list.reset()
		for left > 0 {
			n := min(left, uint64(len(zeroes)))
			f.list.add(piece{bytes: zeroes[:n], n: n})
			left -= n
		}
	}
}

var zeroes = make([]byte, 64<<10)

// stopped is why memory of this connection must not move.
func (c *conn) stopped() error {
	if c.lingering.Load() {
		return errGone
	}
	return errCut
}

// writePart is the most that is written while memory is held.
const writePart = 1 << 20

// push writes a part of a frame.
func (c *conn) push(f *frame, wait bool) (again bool, err error) {
	if c.raw == nil {
		return c.pushCopy(f, wait)
	}
	cerr := c.raw.Write(func(fd uintptr) bool {
		again = false
		if f.list.left > 0 {
			c.memory.RLock()
			defer c.memory.RUnlock()
			if c.dead && !f.failed {
				err = c.stopped()
				return true
			}
		}
		_, err = f.list.move(false, writePart, f.head, func(segs [][]byte) (int, error) {
			n, err := unix.Writev(int(fd), segs)
			if n < 0 {
				n = 0
			}
			k := min(n, len(f.head))
			f.head = f.head[k:]
			if n > 0 {
				c.q.send.progress.Add(1)
			}
			if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
				again, err = errors.Is(err, unix.EAGAIN), nil
			}
			if errors.Is(err, unix.EFAULT) {
				err = errGone
			}
			return n - k, err
		})
		return !again || !wait
	})
	err = cmp.Or(err, cerr)
	return again, err
}

// pushCopy writes a part of a frame to an encrypted connection, through a buffer.
func (c *conn) pushCopy(f *frame, wait bool) (again bool, err error) {
	if !wait {
		return true, nil
	}
	buf := make([]byte, 0, 64<<10)
	buf = append(buf, f.head...)
	c.memory.RLock()
	if c.dead && f.list.left > 0 && !f.failed {
		err = c.stopped()
	} else {
		_, err = f.list.move(false, cap(buf)-len(buf), nil, func(segs [][]byte) (n int, _ error) {
			for _, s := range segs {
				buf = append(buf, s...)
				n += len(s)
			}
			return n, nil
		})
	}
	c.memory.RUnlock()
	if err != nil {
		return false, err
	}
	f.head = nil
	_, err = c.c.Write(buf)
	return false, err
}
