package softcuda

import (
	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/gpu"
)

// A Need is what a function requires before its method is called.
type Need uint8

const (
	NeedNothing Need = iota
	NeedDriver       // the driver is initialized
	NeedDevice       // an argument is the number of a device
	NeedContext      // the thread has a current context
	NeedStream       // an argument is a stream; default streams need a current context
	NeedEvent        // an argument is an event
)

// A Call is a function call of a thread, with what the function needs.
type Call struct {
	*Thread

	arg    handle.ID // the argument that names what follows
	dev    *device
	ctx    *context // of the stream, or the current one
	stream *stream
	event  *event
}

// Prepare looks up what a function needs; arg is the argument that names it.
func (d *Driver) Prepare(t *Thread, n Need, arg uint64) (c Call, err error) {
	c.Thread, c.arg = t, handle.ID(arg)
	switch n {
	case NeedDriver:
		_, err = d.machine()
	case NeedDevice:
		c.dev, err = d.device(int32(arg))
	case NeedContext:
		c.ctx, err = d.current(t)
	case NeedStream:
		if c.stream, err = d.stream(t, c.arg); err == nil {
			c.ctx = c.stream.ctx
		}
	case NeedEvent:
		c.event, err = d.event(c.arg)
	}
	return c, err
}

func (d *Driver) machine() (*machine, error) {
	if m := d.ready.Load(); m != nil {
		return m, nil
	}
	return nil, gpu.ErrNotInitialized
}

func (d *Driver) device(i int32) (*device, error) {
	m, err := d.machine()
	if err != nil {
		return nil, err
	}
	if i < 0 || int(i) >= len(m.devices) {
		return nil, gpu.ErrInvalidDevice
	}
	return m.devices[i], nil
}

// current is the context that is current on the thread.
func (d *Driver) current(t *Thread) (*context, error) {
	if _, err := d.machine(); err != nil {
		return nil, err
	}
	id := t.top()
	if id == 0 {
		return nil, gpu.ErrInvalidContext
	}
	return find(d.contexts, id, gpu.ErrContextDestroyed)
}

// The streams that have no handle: NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD.
const lastDefault handle.ID = 2

func (d *Driver) stream(t *Thread, id handle.ID) (*stream, error) {
	if id <= lastDefault {
		c, err := d.current(t)
		if err != nil {
			return nil, err
		}
		s, err := c.gpu.DefaultStream()
		return &stream{ctx: c, gpu: s}, err
	}
	if _, err := d.machine(); err != nil {
		return nil, err
	}
	return find(d.streams, id, gpu.ErrInvalidHandle)
}

func (d *Driver) event(id handle.ID) (*event, error) {
	if _, err := d.machine(); err != nil {
		return nil, err
	}
	return find(d.events, id, gpu.ErrInvalidHandle)
}
