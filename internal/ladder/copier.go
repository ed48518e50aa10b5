package ladder

import (
	"errors"
	"sync"

	"github.com/culvert-io/culvert/gpu"
)

// A copier copies and waits. A synchronous copy of CUDA waits for the default stream,
// and through it for every blocking stream of the context. If one of them waits for the
// transfer (Op.InStream), the two would wait for each other: such a copy uses a stream
// of the copier.
type copier struct {
	dev gpu.Device

	mu   sync.Mutex
	idle []gpu.Stream
}

// in copies from host memory to the GPU.
func (c *copier) in(op *Op, dst gpu.Addr, src []byte) error {
	if op.InStream {
		return c.inStream(dst, gpu.HostAddr(src), uint64(len(src)))
	}
	return c.dev.CopyIn(dst, src)
}

// out copies from the GPU to host memory.
func (c *copier) out(op *Op, dst []byte, src gpu.Addr) error {
	if op.InStream {
		return c.inStream(gpu.HostAddr(dst), src, uint64(len(dst)))
	}
	return c.dev.CopyOut(dst, src)
}

// inStream copies by a stream of the copier, whether or not a stream waits for the op.
func (c *copier) inStream(dst, src gpu.Addr, n uint64) error {
	return c.finish(func(s gpu.Stream) error { return s.Copy(dst, src, n) })
}

// zero clears memory in the same way.
func (c *copier) zero(dst gpu.Addr, n uint64) error {
	return c.finish(func(s gpu.Stream) error { return s.Fill(dst, 0, 1, n) })
}

// finish has a stream of the copier do work.
func (c *copier) finish(work func(gpu.Stream) error) error {
	s, err := c.acquire()
	if err != nil {
		return err
	}
	defer c.release(s)
	if err := work(s); err != nil {
		return err
	}
	return s.Synchronize()
}

func (c *copier) acquire() (gpu.Stream, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.idle); n > 0 {
		s := c.idle[n-1]
		c.idle = c.idle[:n-1]
		return s, nil
	}
	return c.dev.NewStream()
}

func (c *copier) release(s gpu.Stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idle = append(c.idle, s)
}

// close closes the streams. No copy may be in flight.
func (c *copier) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, s := range c.idle {
		errs = append(errs, s.Close())
	}
	c.idle = nil
	return errors.Join(errs...)
}
