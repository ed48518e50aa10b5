package cuda

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/culvert-io/culvert/gpu"
)

type event struct {
	d      *Device
	handle uintptr
	closed atomic.Bool
}

// NewEvent creates an event with timing.
func (d *Device) NewEvent() (gpu.Event, error) {
	h := new(uintptr)
	s := &d.symbols.cuEventCreate
	if c := d.call(s, ref(h), eventDefault); c != gpu.Success {
		return nil, d.fail(s, c, "")
	}
	e := &event{d: d, handle: *h}
	d.parts.add(e)
	return e, nil
}

// handleOf is the CUevent of an event that is ours and open.
func handleOf(e gpu.Event) (uintptr, bool) {
	ours, ok := e.(*event)
	if !ok || ours == nil || ours.closed.Load() {
		return 0, false
	}
	return ours.handle, true
}

// Record marks the stream's present end by the event.
func (t *Stream) Record(e gpu.Event) error {
	s := &t.d.symbols.cuEventRecord
	h, ok := handleOf(e)
	if !ok {
		return t.d.fail(s, t.d.unusable(), "not an open CUDA event")
	}
	if c := t.call(s, h, t.handle); c != gpu.Success {
		return t.d.fail(s, c, "")
	}
	return nil
}

// WaitEvent holds the stream until the event has happened.
func (t *Stream) WaitEvent(e gpu.Event) error {
	s := &t.d.symbols.cuStreamWaitEvent
	h, ok := handleOf(e)
	if !ok {
		return t.d.fail(s, t.d.unusable(), "not an open CUDA event")
	}
	if c := t.call(s, t.handle, h, 0); c != gpu.Success {
		return t.d.fail(s, c, "")
	}
	return nil
}

func (e *event) call(s *symbol, args ...uintptr) gpu.Code {
	if e.closed.Load() {
		return e.d.unusable()
	}
	return e.d.call(s, args...)
}

// Done reports whether the event has happened. One that was never recorded
// has.
func (e *event) Done() (bool, error) {
	s := &e.d.symbols.cuEventQuery
	switch c := e.call(s, e.handle); c {
	case gpu.Success:
		return true, nil
	case gpu.ErrNotReady:
		return false, nil
	default:
		return true, e.d.fail(s, c, "")
	}
}

// Synchronize waits until the event has happened.
func (e *event) Synchronize() error {
	s := &e.d.symbols.cuEventSynchronize
	if c := e.call(s, e.handle); c != gpu.Success {
		return e.d.fail(s, c, "")
	}
	return nil
}

// Since is the time from start to e.
func (e *event) Since(start gpu.Event) (time.Duration, error) {
	s := &e.d.symbols.cuEventElapsedTime
	h, ok := handleOf(start)
	if !ok {
		return 0, e.d.fail(s, e.d.unusable(), "not an open CUDA event")
	}
	ms := new(float32)
	if c := e.call(s, ref(ms), h, e.handle); c != gpu.Success {
		return 0, e.d.fail(s, c, "")
	}
	return time.Duration(math.Round(float64(*ms) * 1e6)), nil
}

// Close destroys the event.
func (e *event) Close() error {
	s := &e.d.symbols.cuEventDestroy
	if e.closed.Swap(true) {
		return e.d.fail(s, e.d.unusable(), "closed before")
	}
	e.d.parts.remove(e)
	if c := e.d.call(s, e.handle); c != gpu.Success {
		return e.d.fail(s, c, "")
	}
	return nil
}
