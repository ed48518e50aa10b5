package softcuda

import (
	"errors"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/gpu"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
)

// A context is a CUcontext.
type context struct {
	id      handle.ID
	num     uint64
	dev     int32
	flags   uint32
	primary bool
	gpu     *softgpu.Device
	limits  map[int32]uint64 // that were set; guarded by Driver.mu
}

// current is the context that the thread works in.
func (d *Driver) current(t *Thread) (*context, error) {
	if _, err := d.machine(); err != nil {
		return nil, err
	}
	id := t.top()
	if id == 0 {
		return nil, gpu.ErrInvalidContext
	}
	c, ok := d.contexts.Get(id)
	if !ok {
		return nil, gpu.ErrContextDestroyed
	}
	return c, nil
}

// context finds a CUcontext that was passed in.
func (d *Driver) context(id handle.ID) (*context, error) {
	if _, err := d.machine(); err != nil {
		return nil, err
	}
	c, ok := d.contexts.Get(id)
	if !ok {
		return nil, gpu.ErrInvalidContext
	}
	return c, nil
}

// Current reports the device of the thread's context; ok is false without one.
func (d *Driver) Current(t *Thread) (dev int32, ok bool) {
	c, err := d.current(t)
	if err != nil {
		return 0, false
	}
	return c.dev, true
}

// enter makes a handle for a context. Call with d.mu held.
func (d *Driver) enter(c *context) error {
	d.nextID++
	c.num = d.nextID
	id, ok := d.contexts.Add(c)
	if !ok {
		return gpu.ErrOutOfMemory
	}
	c.id = id
	return nil
}

// leave ends a context: what was made in it is gone.
func (d *Driver) leave(c *context) error {
	if _, ok := d.contexts.Remove(c.id); !ok {
		return gpu.ErrInvalidContext
	}
	for _, s := range d.streams.RemoveFunc(func(s *stream) bool { return s.ctx == c }) {
		s.gpu.Close() // the context is going: nobody can be told
	}
	d.events.RemoveFunc(func(e *event) bool { return e.ctx == c })
	d.modules.RemoveFunc(func(m *module) bool { return m.ctx == c })
	d.funcs.RemoveFunc(func(f *function) bool { return f.ctx == c })
	d.mu.Lock()
	for a, al := range d.allocs {
		if al.ctx == c {
			delete(d.allocs, a)
		}
	}
	d.mu.Unlock()
	return c.gpu.Close()
}

// Retain takes the primary context of a device and returns its handle.
func (d *Driver) Retain(dev int32) (handle.ID, error) {
	x, err := d.device(dev)
	if err != nil {
		return 0, err
	}
	m := d.ready.Load()
	d.mu.Lock()
	defer d.mu.Unlock()
	if x.primary == nil {
		g, err := m.drv.Open(int(dev))
		if err != nil {
			return 0, err
		}
		c := &context{dev: dev, flags: x.flags, primary: true, gpu: g.(*softgpu.Device)}
		if err := d.enter(c); err != nil {
			return 0, errors.Join(err, g.Close())
		}
		x.primary = c
	}
	x.refs++
	return x.primary.id, nil
}

// DevicePrimaryCtxRetain is cuDevicePrimaryCtxRetain.
func (d *Driver) DevicePrimaryCtxRetain(_ *Thread, out cmem.Ptr, dev int32) error {
	id, err := d.Retain(dev)
	if err != nil {
		return err
	}
	cmem.Store(out, id)
	return nil
}

// DevicePrimaryCtxRelease is cuDevicePrimaryCtxRelease.
func (d *Driver) DevicePrimaryCtxRelease(_ *Thread, dev int32) error {
	x, err := d.device(dev)
	if err != nil {
		return err
	}
	d.mu.Lock()
	if x.refs == 0 {
		d.mu.Unlock()
		return gpu.ErrInvalidContext
	}
	x.refs--
	var last *context
	if x.refs == 0 {
		last, x.primary = x.primary, nil
	}
	d.mu.Unlock()
	if last != nil {
		return d.leave(last)
	}
	return nil
}

// DevicePrimaryCtxReset is cuDevicePrimaryCtxReset: the context ends whoever
// retains it, and begins anew for them.
func (d *Driver) DevicePrimaryCtxReset(_ *Thread, dev int32) error {
	x, err := d.device(dev)
	if err != nil {
		return err
	}
	d.mu.Lock()
	old := x.primary
	x.primary, x.refs = nil, 0
	d.mu.Unlock()
	if old != nil {
		return d.leave(old)
	}
	return nil
}

// DevicePrimaryCtxSetFlags is cuDevicePrimaryCtxSetFlags.
func (d *Driver) DevicePrimaryCtxSetFlags(_ *Thread, dev int32, flags uint32) error {
	x, err := d.device(dev)
	if err != nil {
		return err
	}
	if !validContextFlags(flags) {
		return gpu.ErrInvalidValue
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	x.flags = flags
	if x.primary != nil {
		x.primary.flags = flags
	}
	return nil
}

// DevicePrimaryCtxGetState is cuDevicePrimaryCtxGetState.
func (d *Driver) DevicePrimaryCtxGetState(_ *Thread, dev int32, flags, active cmem.Ptr) error {
	x, err := d.device(dev)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	on := int32(0)
	if x.primary != nil {
		on = 1
	}
	cmem.Store(flags, x.flags)
	cmem.Store(active, on)
	return nil
}

func validContextFlags(f uint32) bool {
	const sched, rest = 0x7, uint32(gpu.ContextMapHost | gpu.ContextSyncMemops)
	return f&^(sched|rest) == 0 && f&sched != 3 && f&sched <= 4
}

// Alive reports whether a context still is one.
func (d *Driver) Alive(id handle.ID) bool {
	_, ok := d.contexts.Get(id)
	return ok
}
