package gpu

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/culvert-io/culvert/gpu"
)

// A context is what work belongs to. The handles of a primary context share
// one; NewContext makes others.
//
// Locks are taken in the order Driver.ctxMu, context.mu, Stream.mu, Driver.mu.
type context struct {
	drv     *Driver
	card    *GPU
	handles int // guarded by Driver.ctxMu

	// slabs are blocks with room for small allocations. Guarded by Driver.mu.
	slabs []*block

	lost atomic.Pointer[loss] // why the context cannot be used any more
	dead chan struct{}        // closed when it is lost, and before it is destroyed
	once sync.Once

	blocking atomic.Int32 // streams for which synchronous calls wait

	mu      sync.Mutex
	streams []*Stream
	legacy  *Stream // made on first use
}

// A loss is the error that all later calls get.
type loss struct {
	code   gpu.Code
	detail string
}

// newContext makes a context with no handle, which a lost GPU has none of any
// more. Call with d.ctxMu held.
func (d *Driver) newContext(op string, g *GPU) (*context, error) {
	if g.lost != nil {
		return nil, g.lost.err(op)
	}
	c := &context{drv: d, card: g, dead: make(chan struct{})}
	d.contexts[c] = struct{}{}
	return c, nil
}

// lose is what an error of a kernel does. As on hardware it takes down all
// contexts of the GPU, whosever kernel it was, and there will be no new ones as
// long as the driver lives: CUDA's documents want the process to be started
// again. Only the first error counts.
func (c *context) lose(code gpu.Code, detail string) {
	c.drv.ctxMu.Lock()
	defer c.drv.ctxMu.Unlock()
	if c.card.lost == nil {
		c.card.lost = &loss{code, detail}
	}
	c.end(c.card.lost) // also when it is being destroyed and not in the list
	for o := range c.drv.contexts {
		if o.card == c.card {
			o.end(c.card.lost)
		}
	}
}

// end makes the error stick to the context, unless it has one.
func (c *context) end(l *loss) {
	c.lost.CompareAndSwap(nil, l)
	c.kill()
}

func (l *loss) err(op string) error { return gpu.Fail(op, l.code, l.detail) }

// kill makes streams give up what they wait for.
func (c *context) kill() { c.once.Do(func() { close(c.dead) }) }

func (c *context) dying() bool {
	select {
	case <-c.dead:
		return true
	default:
		return false
	}
}

// err is what calls get in the state that the context is in.
func (c *context) err(op string) error {
	if l := c.lost.Load(); l != nil {
		return l.err(op)
	}
	if c.dying() {
		return gpu.Fail(op, gpu.ErrContextDestroyed, "")
	}
	return nil
}

// release gives a handle back and destroys the context with the last one.
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

// destroy ends the work of the context: streams are finished, except that one
// which waits for a value or an event gives up.
func (c *context) destroy() {
	c.kill()
	c.drain()
	c.end(&loss{code: gpu.ErrContextDestroyed})
}

// drain waits for the work that was enqueued so far.
func (c *context) drain() {
	c.mu.Lock()
	streams := slices.Clone(c.streams)
	c.mu.Unlock()
	for _, s := range streams {
		s.drain()
	}
}

// synchronize is drain, and the error that the work left behind.
func (c *context) synchronize(op string) error {
	c.drain()
	return c.err(op)
}

// settle waits for the streams that synchronous calls wait for.
func (c *context) settle() {
	if c.blocking.Load() == 0 {
		return
	}
	c.mu.Lock()
	streams := slices.DeleteFunc(slices.Clone(c.streams), func(s *Stream) bool { return !s.blocking })
	c.mu.Unlock()
	for _, s := range streams {
		s.drain()
	}
}

// forget removes a stream that was closed and has nothing left to do.
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
