package softcuda

import (
	"time"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/gpu"
)

// Flags of cuEventCreate.
const (
	eventBlocking      = 1
	eventDisableTiming = 2
)

// An event is a CUevent.
type event struct {
	ctx   *context
	flags uint32
	gpu   gpu.Event
}

func (d *Driver) event(id handle.ID) (*event, error) {
	if _, err := d.machine(); err != nil {
		return nil, err
	}
	e, ok := d.events.Get(id)
	if !ok {
		return nil, gpu.ErrInvalidHandle
	}
	return e, nil
}

// EventCreate is cuEventCreate. Events of other processes are not there.
func (d *Driver) EventCreate(t *Thread, out cmem.Ptr, flags uint32) error {
	c, err := d.current(t)
	if err != nil {
		return err
	}
	if flags&^(eventBlocking|eventDisableTiming) != 0 {
		return gpu.ErrInvalidValue
	}
	g, err := c.gpu.NewEvent()
	if err != nil {
		return err
	}
	id, ok := d.events.Add(&event{c, flags, g})
	if !ok {
		g.Close()
		return gpu.ErrOutOfMemory
	}
	cmem.Store(out, id)
	return nil
}

// EventDestroy is cuEventDestroy.
func (d *Driver) EventDestroy(_ *Thread, id handle.ID) error {
	if _, err := d.machine(); err != nil {
		return err
	}
	e, ok := d.events.Remove(id)
	if !ok {
		return gpu.ErrInvalidHandle
	}
	return e.gpu.Close()
}

// EventRecord is cuEventRecord.
func (d *Driver) EventRecord(t *Thread, id, to handle.ID) error {
	e, err := d.event(id)
	if err != nil {
		return err
	}
	s, err := d.stream(t, to)
	if err != nil {
		return err
	}
	return s.gpu.Record(e.gpu)
}

// EventRecordWithFlags is cuEventRecordWithFlags; the flag for graphs means
// nothing outside of them.
func (d *Driver) EventRecordWithFlags(t *Thread, id, to handle.ID, flags uint32) error {
	const external = 1
	if flags&^external != 0 {
		return gpu.ErrInvalidValue
	}
	return d.EventRecord(t, id, to)
}

// EventQuery is cuEventQuery.
func (d *Driver) EventQuery(_ *Thread, id handle.ID) error {
	e, err := d.event(id)
	if err != nil {
		return err
	}
	done, err := e.gpu.Done()
	if err == nil && !done {
		return gpu.ErrNotReady
	}
	return err
}

// EventSynchronize is cuEventSynchronize.
func (d *Driver) EventSynchronize(_ *Thread, id handle.ID) error {
	e, err := d.event(id)
	if err != nil {
		return err
	}
	return e.gpu.Synchronize()
}

// EventElapsedTime is cuEventElapsedTime: milliseconds.
func (d *Driver) EventElapsedTime(_ *Thread, out cmem.Ptr, start, end handle.ID) error {
	from, err := d.event(start)
	if err != nil {
		return err
	}
	to, err := d.event(end)
	if err != nil {
		return err
	}
	if (from.flags|to.flags)&eventDisableTiming != 0 {
		return gpu.ErrInvalidHandle
	}
	took, err := to.gpu.Since(from.gpu)
	if err != nil {
		return err
	}
	cmem.Store(out, float32(took)/float32(time.Millisecond))
	return nil
}
