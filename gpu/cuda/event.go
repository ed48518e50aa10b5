package cuda

import (
	"math"
	"time"

	"github.com/culvert-io/culvert/gpu"
)

type event struct{ object }

// NewEvent creates an event with timing.
func (d *Device) NewEvent() (gpu.Event, error) {
	h := new(uintptr)
	s := &d.symbols.cuEventCreate
	if err := d.check(s, d.call(s, ref(h), eventDefault)); err != nil {
		return nil, err
	}
	e := new(event)
	d.adopt(&e.object, *h, &d.symbols.cuEventDestroy)
	return e, nil
}

// handleOf is the CUevent of an open event of this package.
func handleOf(e gpu.Event) (uintptr, bool) {
	ours, ok := e.(*event)
	if !ok || ours == nil || ours.closed.Load() {
		return 0, false
	}
	return ours.handle, true
}

func (d *Device) notAnEvent(s *symbol) error {
	return d.fail(s, d.unusable(), "not an open CUDA event")
}

// Record places the event behind the work that the stream has now.
func (t *Stream) Record(e gpu.Event) error {
	s := &t.d.symbols.cuEventRecord
	h, ok := handleOf(e)
	if !ok {
		return t.d.notAnEvent(s)
	}
	return t.d.check(s, t.call(s, h, t.handle))
}

// WaitEvent makes later work of the stream wait for the event.
func (t *Stream) WaitEvent(e gpu.Event) error {
	s := &t.d.symbols.cuStreamWaitEvent
	h, ok := handleOf(e)
	if !ok {
		return t.d.notAnEvent(s)
	}
	return t.d.check(s, t.call(s, t.handle, h, 0))
}

// Done reports whether the stream has reached the event. It is true for an
// event that was never recorded.
func (e *event) Done() (bool, error) { return e.done(&e.d.symbols.cuEventQuery) }

// Synchronize waits until the stream has reached the event.
func (e *event) Synchronize() error { return e.synchronize(&e.d.symbols.cuEventSynchronize) }

// Since is the time from start to e.
func (e *event) Since(start gpu.Event) (time.Duration, error) {
	s := &e.d.symbols.cuEventElapsedTime
	h, ok := handleOf(start)
	if !ok {
		return 0, e.d.notAnEvent(s)
	}
	ms := new(float32)
	if err := e.d.check(s, e.call(s, ref(ms), h, e.handle)); err != nil {
		return 0, err
	}
	return time.Duration(math.Round(float64(*ms) * 1e6)), nil
}
