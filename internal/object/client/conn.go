package client

import (
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// headBytes is the buffer of package net/http, through which the heads of answers are
	// read. A longer read is one of a body, which has at least that many bytes left.
	headBytes = 4 << 10
	// maxBatch is how many bytes of a body a wait is for, at most. A store that writes
	// 32 KiB at a time would wake the reader for each.
	maxBatch = 256 << 10
	// minBatch is worth a system call, and batchTime is how long such a wait takes at
	// most, at the rate of the bytes before: what waits in the kernel is not seen by the
	// scheduler, to which the request would look slow.
	minBatch  = 32 << 10
	batchTime = 4 * time.Millisecond
)

// A bodyConn is a connection whose reads of bodies wait for many bytes, not for the first:
// fewer wake-ups, and fewer system calls.
type bodyConn struct {
	*net.TCPConn
	plain   atomic.Bool // HTTP without TLS, which asks for more bytes than are sure to come
	written bool
	least   int       // bytes that a read waits for
	began   time.Time // of a body; zero between two
	bytes   int       // that arrived since then
	rate    float64   // bytes per second of the body, or of the one before
}

// Write sends bytes. The first tell what the connection is used for.
func (c *bodyConn) Write(p []byte) (int, error) {
	if !c.written && len(p) > 0 {
		c.written = true
		c.plain.Store(isRequest(p))
	}
	return c.TCPConn.Write(p)
}

// isRequest reports whether bytes are the beginning of a request other than CONNECT. TLS,
// or what may be followed by it, begins otherwise.
func isRequest(p []byte) bool { return p[0] >= 'A' && p[0] <= 'Z' && p[0] != 'C' }

// Read reads into p, at once if there are bytes.
func (c *bodyConn) Read(p []byte) (int, error) {
	if c.plain.Load() {
		c.wait(len(p))
	}
	n, err := c.TCPConn.Read(p)
	c.bytes += n
	return n, err
}

// wait says how many bytes to wait for, if there are none. The end of the connection ends
// the wait, too.
func (c *bodyConn) wait(n int) {
	now := time.Now()
	if n <= headBytes {
		c.began, c.bytes = time.Time{}, 0
		c.setLeast(1)
		return
	}
	if c.began.IsZero() {
		c.began = now
	} else if took := now.Sub(c.began); took > 0 {
		c.rate = float64(c.bytes) / took.Seconds()
	}
	c.setLeast(batch(n, c.rate))
}

// batch is how many of n bytes to wait for at a rate.
func batch(n int, rate float64) int {
	least := min(n, maxBatch, int(rate*batchTime.Seconds()))
	if least < min(n, minBatch) {
		return 1
	}
	return least
}

// setLeast sets the bytes from which the kernel wakes a reader. Without that, it wakes for
// the first.
func (c *bodyConn) setLeast(n int) {
	if n == c.least {
		return
	}
	raw, err := c.SyscallConn()
	if err == nil {
		_ = raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVLOWAT, n) })
	}
	if err == nil {
		c.least = n
	}
}
