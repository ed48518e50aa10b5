package gpu

import (
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/culvert-io/culvert/gpu"
)

// StreamFlags are CUDA's flags of cuStreamCreate.
type StreamFlags uint32

const (
	// StreamDefault creates a blocking stream: it waits for the legacy default stream, and
	// synchronous calls wait for it.
	StreamDefault StreamFlags = 0
	// StreamNonBlocking creates an independent stream, as NewStream does.
	StreamNonBlocking StreamFlags = 1
)

// A Stream is a gpu.Stream. A goroutine exists only while there is work.
type Stream struct {
	dev      *Device // nil for the legacy stream, which belongs to the context
	ctx      *context
	blocking bool
	work     func() // run as a value: a go statement with a method allocates

	mu       sync.Mutex
	moved    sync.Cond // finished has changed
	queue    []task    // from head on
	head     int
	enqueued uint64
	finished uint64
	running  bool
	closed   bool
	broken   bool // gave up a wait: what follows must not run
}

var _ gpu.Stream = (*Stream)(nil)

// NewStream creates an independent stream.
func (x *Device) NewStream() (gpu.Stream, error) {
	s, err := x.NewStreamFlags(StreamNonBlocking)
	if err != nil {
		return nil, err // not a nil *Stream in an interface
	}
	return s, nil
}

// NewStreamFlags creates a stream of either kind.
func (x *Device) NewStreamFlags(f StreamFlags) (*Stream, error) {
	op := fmt.Sprintf("cuStreamCreate(%#x)", uint32(f))
	if err := x.check(op); err != nil {
		return nil, err
	}
	if f > StreamNonBlocking {
		return nil, gpu.Fail(op, gpu.ErrInvalidValue, "unknown flags")
	}
	x.ctx.mu.Lock()
	defer x.ctx.mu.Unlock()
	s := x.ctx.newStream(f == StreamDefault)
	s.dev = x
	return s, nil
}

// DefaultStream returns the legacy default stream of the context. Its work waits for all
// earlier work of blocking streams, and theirs for its work.
func (x *Device) DefaultStream() (*Stream, error) {
	if err := x.check("default stream"); err != nil {
		return nil, err
	}
	x.ctx.mu.Lock()
	defer x.ctx.mu.Unlock()
	if x.ctx.legacy == nil {
		x.ctx.legacy = x.ctx.newStream(true)
	}
	return x.ctx.legacy, nil
}

// newStream is called with c.mu held.
func (c *context) newStream(blocking bool) *Stream {
	s := &Stream{ctx: c, blocking: blocking}
	s.moved.L = &s.mu
	s.work = s.run
	c.streams = append(c.streams, s)
	if blocking {
		c.blocking.Add(1)
	}
	return s
}

// push enqueues a task, or releases what it holds.
func (s *Stream) push(op string, t task) error {
	if s.blocking {
		// One lock for looking at the others and for taking a place in the
		// queue: else two streams could wait for each other.
		s.ctx.mu.Lock()
		defer s.ctx.mu.Unlock()
		t.after = s.ctx.before(s)
	}
	s.mu.Lock()
	err := s.errLocked(op)
	if err == nil {
		if s.head > len(s.queue)/2 {
			s.queue, s.head = s.queue[:copy(s.queue, s.queue[s.head:])], 0
		}
		s.queue = append(s.queue, t)
		s.enqueued++
		if !s.running {
			s.running = true
			go s.work()
		}
	}
	s.mu.Unlock()
	if err != nil {
		s.ctx.drv.release(t.dst, t.src)
	}
	return err
}

func (s *Stream) errLocked(op string) error {
	if s.closed {
		return gpu.Fail(op, gpu.ErrInvalidHandle, "the stream was closed")
	}
	if s.dev != nil {
		return s.dev.check(op)
	}
	return s.ctx.err(op)
}

// check returns the error of any call, if the stream is not usable.
func (s *Stream) check(op string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.errLocked(op)
}

// A ticket is a position in a stream.
type ticket struct {
	s *Stream
	n uint64
}

// before returns what new work of s must wait for under the rules of the legacy default
// stream. Call with c.mu held.
func (c *context) before(s *Stream) []ticket {
	var after []ticket
	for _, o := range c.streams {
		if o != s && o.blocking && (s == c.legacy || o == c.legacy) {
			if n, busy := o.tail(); busy {
				after = append(after, ticket{o, n})
			}
		}
	}
	return after
}

func (s *Stream) tail() (n uint64, busy bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.enqueued, s.finished < s.enqueued
}

// run executes tasks until the queue is empty.
func (s *Stream) run() {
	// A kernel or a copy may access memory that the user has unmapped. The GPU reports
	// this fault; the process must not crash.
	debug.SetPanicOnFault(true)
	for {
		s.mu.Lock()
		if s.head == len(s.queue) {
			s.queue, s.head = s.queue[:0], 0
			s.running = false
			closed := s.closed
			s.mu.Unlock()
			if closed {
				s.ctx.forget(s)
			}
			return
		}
		t := s.queue[s.head]
		s.queue[s.head] = task{}
		s.head++
		skip := s.broken
		s.mu.Unlock()

		broken := s.execute(&t, skip)

		s.mu.Lock()
		s.broken = s.broken || broken
		s.finished++
		s.moved.Broadcast()
		s.mu.Unlock()
	}
}

// drain waits for the work that was enqueued so far.
func (s *Stream) drain() {
	n, _ := s.tail()
	s.reach(n)
}

// reach waits until the stream has finished n tasks.
func (s *Stream) reach(n uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.finished < n {
		s.moved.Wait()
	}
}

// Done reports whether all work has finished.
func (s *Stream) Done() (bool, error) {
	const op = "cuStreamQuery()"
	if err := s.check(op); err != nil {
		return true, err
	}
	_, busy := s.tail()
	return !busy, nil
}

// WaitIfIdle is Wait if the stream has nothing to do and waits for no other stream. It
// reports whether that is so.
func (s *Stream) WaitIfIdle(a gpu.Addr, value uint64, width int, cond gpu.Cond) (bool, error) {
	if s.blocking {
		return false, nil
	}
	if done, err := s.Done(); err != nil || !done {
		return false, err
	}
	err := s.Wait(a, value, width, cond)
	return err == nil, err
}

// Synchronize waits for all work.
func (s *Stream) Synchronize() error {
	const op = "cuStreamSynchronize()"
	if err := s.check(op); err != nil {
		return err
	}
	s.drain()
	return s.ctx.err(op)
}

// Close returns at once. The enqueued work is still executed.
func (s *Stream) Close() error {
	const op = "cuStreamDestroy()"
	s.ctx.mu.Lock()
	legacy := s == s.ctx.legacy
	s.ctx.mu.Unlock()
	if legacy {
		return gpu.Fail(op, gpu.ErrInvalidHandle, "the default stream belongs to the context")
	}
	s.mu.Lock()
	err := s.errLocked(op)
	s.closed = true
	idle := !s.running
	s.mu.Unlock()
	if idle {
		s.ctx.forget(s)
	}
	return err
}
