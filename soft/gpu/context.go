package gpu

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/culvert-io/culvert/gpu"
)

// A context owns streams and allocations. The handles of a primary context share one;
// NewContext creates others.
//
// Locks are taken in the order Driver.ctxMu, context.mu, Stream.mu, Driver.mu.
type context struct {
	drv     *Driver
	card    *GPU
	handles int // guarded by Driver.ctxMu

	// slabs are blocks with room for small allocations. Guarded by Driver.mu.
	slabs []*block

	lost atomic.Pointer[refusal] // why the context cannot be used any more
	dead chan struct{}           // closed when it is lost, and before it is destroyed
	kill func()                  // closes dead, so that streams give up what they wait for

	blocking atomic.Int32 // streams for which synchronous calls wait

	mu      sync.Mutex
	streams []*Stream
	legacy  *Stream // made on first use
}

// ended reports whether streams give up what they wait for.
func (c *context) ended() bool { return closed(c.dead) }

// newContext creates a context without handles. It fails on a lost GPU. Call with
// d.ctxMu held.
func (d *Driver) newContext(op string, g *GPU) (*context, error) {
	if g.lost != nil {
		return nil, fail(op, g.lost)
	}
	c := &context{drv: d, card: g, dead: make(chan struct{})}
	c.kill = sync.OnceFunc(func() { close(c.dead) })
	d.contexts[c] = struct{}{}
	return c, nil
}

// lose handles an error of a kernel. As on hardware all contexts of the GPU are lost, and
// no new one can be created while the driver lives: CUDA's documentation requires a
// restart of the process. Only the first error counts.
func (c *context) lose(code gpu.Code, detail string) {
	c.drv.ctxMu.Lock()
	defer c.drv.ctxMu.Unlock()
	c.card.lost = cmp.Or(c.card.lost, &refusal{code, detail})
	c.end(c.card.lost) // also when it is being destroyed and not in the list
	for o := range c.drv.contexts {
		if o.card == c.card {
			o.end(c.card.lost)
		}
	}
}

// Lose has all GPUs fail as after an error of a kernel.
func (d *Driver) Lose(code gpu.Code, detail string) {
	d.ctxMu.Lock()
	defer d.ctxMu.Unlock()
	for _, g := range d.gpus {
		g.lost = cmp.Or(g.lost, &refusal{code, detail})
	}
	for c := range d.contexts {
		c.end(c.card.lost)
	}
}

// end sets the error of the context, unless it has one.
func (c *context) end(l *refusal) {
	c.lost.CompareAndSwap(nil, l)
	c.kill()
}

// closed reports whether a channel is closed.
func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// err returns the error of calls in the state of the context.
func (c *context) err(op string) error {
	if l := c.lost.Load(); l != nil {
		return fail(op, l)
	}
	if closed(c.dead) {
		return gpu.Fail(op, gpu.ErrContextDestroyed, "")
	}
	return nil
}

// release releases a handle and destroys the context with the last one.
func (c *context) release() {
	c.drv.ctxMu.Lock()
	c.handles--
	last := c.handles == 0
	if last {
		delete(c.drv.contexts, c)
		if c.card.primary == c {
			c.card.primary = nil
		}
	}
	c.drv.ctxMu.Unlock()
	if last {
		c.destroy()
	}
}

// destroy ends the work of the context. Streams are finished, but one that waits for a
// value or an event gives up.
func (c *context) destroy() {
	c.kill()
	c.drain(true)
	c.end(&refusal{code: gpu.ErrContextDestroyed})
}

// drain waits for the work that was enqueued so far, in all streams or in blocking ones.
func (c *context) drain(all bool) {
	c.mu.Lock()
	streams := slices.DeleteFunc(slices.Clone(c.streams), func(s *Stream) bool { return !all && !s.blocking })
	c.mu.Unlock()
	for _, s := range streams {
		s.drain()
	}
}

// waitBlocking waits for the streams for which synchronous calls wait.
func (c *context) waitBlocking() {
	if c.blocking.Load() > 0 {
		c.drain(false)
	}
}

// forget removes a stream that was closed and has no work.
func (c *context) forget(s *Stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.streams, s)
	if i < 0 {
		return
	}
	c.streams = slices.Delete(c.streams, i, i+1)
	if s.blocking {
		c.blocking.Add(-1)
	}
}
