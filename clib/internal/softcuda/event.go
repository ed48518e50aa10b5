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
	eventInterprocess  = 4
)

// An event is a CUevent.
type event struct {
	ctx   *context
	flags uint32
	gpu   gpu.Event
}

// EventCreate is cuEventCreate. An event for other processes has no timing.
func (d *Driver) EventCreate(c Call, out cmem.Ptr, flags uint32) error {
	ours := flags&eventInterprocess == 0
	if flags&^(eventBlocking|eventDisableTiming|eventInterprocess) != 0 || !ours && flags&eventDisableTiming == 0 {
		return gpu.ErrInvalidValue
	}
	var g gpu.Event
	var err error
	if ours {
		g, err = c.ctx.gpu.NewEvent()
	} else {
		g, err = c.ctx.gpu.NewSharedEvent()
	}
	if err != nil {
		return err
	}
	return closeOn(add(d.events, out, &event{c.ctx, flags, g}), g)
}

// EventDestroy is cuEventDestroy.
func (d *Driver) EventDestroy(_ Call, id handle.ID) error {
	e, ok := d.events.Remove(id)
	if !ok {
		return gpu.ErrInvalidHandle
	}
	return e.gpu.Close()
}

// EventRecord is cuEventRecord.
func (d *Driver) EventRecord(c Call, id handle.ID) error {
	e, err := d.event(id)
	if err != nil {
		return err
	}
	return c.stream.gpu.Record(e.gpu)
}

// EventRecordWithFlags is cuEventRecordWithFlags; its flag concerns graphs.
func (d *Driver) EventRecordWithFlags(c Call, id handle.ID, flags uint32) error {
	const external = 1
	if flags&^external != 0 {
		return gpu.ErrInvalidValue
	}
	return d.EventRecord(c, id)
}

// EventQuery is cuEventQuery.
func (d *Driver) EventQuery(c Call) error { return ready(c.event.gpu.Done()) }

// EventSynchronize is cuEventSynchronize.
func (d *Driver) EventSynchronize(c Call) error { return c.event.gpu.Synchronize() }

// EventElapsedTime is cuEventElapsedTime: milliseconds.
func (d *Driver) EventElapsedTime(c Call, out cmem.Ptr, end handle.ID) error {
	to, err := d.event(end)
	if err != nil {
		return err
	}
	if (c.event.flags|to.flags)&eventDisableTiming != 0 {
		return gpu.ErrInvalidHandle
	}
	took, err := to.gpu.Since(c.event.gpu)
	return cmem.Put(out, float32(took)/float32(time.Millisecond), err)
}
