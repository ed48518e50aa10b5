package gpu

import (
	"sync"
	"time"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/soft/internal/cards"
)

// An Event is a gpu.Event.
type Event struct {
	dev *Device
	// shared is what processes know of an event that they share, or nil. Its records are
	// then the ones that count.
	shared *cards.Event

	mu     sync.Mutex
	last   *record // nil before the first Record
	closed bool
}

var _ gpu.Event = (*Event)(nil)

// A record is one Record of an event.
type record struct {
	done   chan struct{}
	shared *cards.Record // of an event that processes share
	// Valid once done is closed.
	at      time.Time
	skipped bool // the context ended before its turn
}

func (r *record) complete(skipped bool) {
	r.at, r.skipped = time.Now(), skipped
	close(r.done)
	if r.shared != nil {
		r.shared.Complete()
	}
}

// NewEvent creates an event with timing.
func (x *Device) NewEvent() (gpu.Event, error) {
	if err := x.check("cuEventCreate"); err != nil {
		return nil, err
	}
	return &Event{dev: x}, nil
}

// current returns the newest record, or nil.
func (e *Event) current(op string) (*record, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, gpu.Fail(op, gpu.ErrInvalidHandle, "the event was closed")
	}
	return e.last, e.dev.check(op)
}

// Done reports whether the work before the newest Record has finished, or there was no
// Record.
func (e *Event) Done() (bool, error) {
	const op = "cuEventQuery()"
	r, err := e.current(op)
	if err == nil && e.shared != nil {
		done, err := e.shared.Newest().Done()
		return done, recorderEnded(op, err)
	}
	return err != nil || r == nil || closed(r.done), err
}

// Synchronize waits for the newest Record.
func (e *Event) Synchronize() error {
	const op = "cuEventSynchronize()"
	r, err := e.current(op)
	switch {
	case err != nil:
		return err
	case e.shared != nil:
		if err := e.shared.Newest().Wait(e.dev.ctx.ended); err != nil {
			return recorderEnded(op, err)
		}
	case r == nil:
		return nil
	default:
		<-r.done
	}
	return e.dev.ctx.err(op)
}

// Since returns the time from start to e.
func (e *Event) Since(start gpu.Event) (time.Duration, error) {
	const op = "cuEventElapsedTime()"
	s, ok := start.(*Event)
	if !ok {
		return 0, gpu.Fail(op, gpu.ErrInvalidHandle, "an event of another driver")
	}
	from, err := s.current(op)
	if err != nil {
		return 0, err
	}
	to, err := e.current(op)
	if err != nil {
		return 0, err
	}
	switch {
	case from == nil || to == nil:
		return 0, gpu.Fail(op, gpu.ErrInvalidHandle, "an event was never recorded")
	case !closed(from.done) || !closed(to.done):
		return 0, gpu.Fail(op, gpu.ErrNotReady, "an event has not happened yet")
	}
	return to.at.Sub(from.at), nil
}

// Close destroys the event. Streams that wait for it continue to wait.
func (e *Event) Close() error {
	const op = "cuEventDestroy()"
	_, err := e.current(op)
	e.mu.Lock()
	defer e.mu.Unlock()
	if err == nil && e.shared != nil { // else the memory may be gone, or the process loses it soon
		e.shared.Close()
	}
	e.closed = true
	return err
}

// Record records the event when the work enqueued so far has finished.
func (s *Stream) Record(ev gpu.Event) error {
	const op = "cuEventRecord()"
	e, ok := ev.(*Event)
	if !ok || e.dev.ctx != s.ctx {
		return gpu.Fail(op, gpu.ErrInvalidHandle, "an event of another context")
	}
	if _, err := e.current(op); err != nil {
		return err
	}
	if err := s.check(op); err != nil {
		return err
	}
	r := &record{done: make(chan struct{})}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.shared != nil {
		n := e.shared.Record()
		r.shared = &n
	}
	if err := s.push(op, task{kind: taskRecord, rec: r}); err != nil {
		r.complete(true)
		return err
	}
	e.last = r
	return nil
}

// WaitEvent makes the stream wait for the newest Record so far.
func (s *Stream) WaitEvent(ev gpu.Event) error {
	const op = "cuStreamWaitEvent()"
	e, ok := ev.(*Event)
	if !ok {
		return gpu.Fail(op, gpu.ErrInvalidHandle, "an event of another driver")
	}
	r, err := e.current(op)
	if err != nil {
		return err
	}
	if e.shared != nil {
		newest := e.shared.Newest()
		r = &record{shared: &newest}
	}
	if r == nil {
		return s.check(op)
	}
	return s.push(op, task{kind: taskWaitEvent, rec: r})
}
