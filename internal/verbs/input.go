package verbs

import (
	"cmp"
	"errors"
	"io"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/rdma"
)

// inputSize is the size of the input buffer. Data that is larger is received into its
// memory directly.
const inputSize = 16 << 10

// An input is the receiving half of a connection.
type input struct {
	buf     []byte
	r, w    int  // buffered: buf[r:w]
	large   bool // the last message was large: read headers alone, so that its data is not copied
	list    list // where the data of the current message goes
	discard bool // the data of the current message goes nowhere
}

// read is the reader. It processes frames until the connection ends.
func (c *conn) read() {
	err := c.process()
	if c.lingering.Load() {
		_ = c.skip(1 << 40) // until the peer closes, or time is over
	}
	q := c.q
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.conn == c {
		if errors.Is(err, errProtocol) {
			q.fail(nil, rdma.BadRespErr)
		} else {
			q.disconnect() // and resume with another one
		}
	}
	c.memory.Lock()
	c.dead = true
	c.memory.Unlock()
	select {
	case <-c.done:
	default:
		close(c.done)
	}
}

func (c *conn) process() error {
	for {
		h, err := c.header()
		if err != nil {
			return err
		}
		n := &c.q.dev.counters
		n.receivedFrames.Add(1)
		n.receivedBytes.Add(uint64(h.follows()))
		if op, ok := h.kind.op(); ok {
			err = c.q.execute(c, op, h)
		} else {
			err = c.q.answer(c, h)
		}
		if err != nil {
			return err
		}
		if c.lingering.Load() {
			c.kick()
			return nil
		}
	}
}

// header reads the next header.
func (c *conn) header() (header, error) {
	in := &c.in
	for in.w-in.r < headerSize {
		limit := len(in.buf)
		if in.large {
			limit = headerSize
		}
		if err := c.fill(limit); err != nil {
			return header{}, err
		}
	}
	h, err := parse((*[headerSize]byte)(in.buf[in.r:]))
	in.r += headerSize
	if err != nil {
		err = errors.Join(errProtocol, err)
	}
	in.large = h.follows() >= inputSize
	return h, err
}

// fill reads more into the buffer, which then has at most limit bytes. What waits to be
// written is written before.
func (c *conn) fill(limit int) error {
	in := &c.in
	if in.r > 0 {
		in.w = copy(in.buf, in.buf[in.r:in.w])
		in.r = 0
	}
	c.kick()
	n, err := c.c.Read(in.buf[in.w:limit])
	in.w += n
	if n > 0 {
		c.q.send.progress.Add(1)
		return nil
	}
	return cmp.Or(err, io.ErrNoProgress)
}

// skip discards n bytes.
func (c *conn) skip(n int) error {
	in := &c.in
	for n > 0 {
		if in.r == in.w {
			if err := c.fill(len(in.buf)); err != nil {
				return err
			}
		}
		k := min(n, in.w-in.r)
		in.r += k
		n -= k
	}
	return nil
}

// receive receives n bytes into in.list, which may have room for more.
func (c *conn) receive(n int) error {
	in := &c.in
	for n > 0 {
		switch {
		case in.r < in.w:
			k := min(n, in.w-in.r)
			if err := c.store(in.buf[in.r : in.r+k]); err != nil {
				return c.giveUp(n, err)
			}
			in.r += k
			n -= k
		case n >= inputSize/2 && c.raw != nil:
			k, err := c.receiveDirect(n)
			n -= k
			if err != nil {
				return c.giveUp(n, err)
			}
		default:
			if err := c.fill(len(in.buf)); err != nil {
				return err
			}
		}
	}
	return nil
}

// giveUp leaves in list.left the number of bytes that still arrive.
func (c *conn) giveUp(n int, err error) error {
	c.in.list.left = uint64(n)
	return err
}

// store copies bytes to in.list.
func (c *conn) store(b []byte) error {
	c.memory.RLock()
	defer c.memory.RUnlock()
	if c.dead {
		return errCut
	}
	for len(b) > 0 {
		k, err := c.in.list.move(true, len(b), nil, func(segs [][]byte) (n int, _ error) {
			for _, s := range segs {
				n += copy(s, b[n:])
			}
			return n, nil
		})
		if err != nil {
			return err
		}
		b = b[k:]
	}
	return nil
}

// receiveDirect receives into in.list without the buffer. Memory is held only during
// reads that do not block.
func (c *conn) receiveDirect(limit int) (n int, err error) {
	c.kick()
	cerr := c.raw.Read(func(fd uintptr) bool {
		c.memory.RLock()
		defer c.memory.RUnlock()
		if c.dead {
			err = errCut
			return true
		}
		again := false
		n, err = c.in.list.move(true, min(limit, writePart), nil, func(segs [][]byte) (int, error) {
			n, err := unix.Readv(int(fd), segs)
			switch {
			case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
				again = true
				return 0, nil
			case errors.Is(err, unix.EFAULT):
				err = errGone
			case err == nil && n == 0:
				err = io.EOF
			}
			return max(n, 0), err
		})
		return !again
	})
	if n > 0 {
		c.q.send.progress.Add(1)
	}
	return n, cmp.Or(err, cerr)
}
