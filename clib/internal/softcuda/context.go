package softcuda

import (
	"errors"
	"math"

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
	limits  map[int32]uint64 // as set by the program; guarded by Driver.mu
}

// Current returns the device of the thread's context; ok is false without one.
func (d *Driver) Current(t *Thread) (dev int32, ok bool) {
	c, err := d.current(t)
	if err != nil {
		return 0, false
	}
	return c.dev, true
}

// enter makes a handle for a context. Call with d.mu held.
func (d *Driver) enter(x *context) error {
	x.num = d.id()
	id, ok := d.contexts.Add(x)
	if !ok {
		return gpu.ErrOutOfMemory
	}
	x.id = id
	return nil
}

// leave ends a context and everything that was created in it.
func (d *Driver) leave(x *context) error {
	if _, ok := d.contexts.Remove(x.id); !ok {
		return gpu.ErrInvalidContext
	}
	for _, s := range d.streams.RemoveFunc(func(s *stream) bool { return s.ctx == x }) {
		s.gpu.Close() // its error has no caller
	}
	for _, e := range d.events.RemoveFunc(func(e *event) bool { return e.ctx == x }) {
		e.gpu.Close()
	}
	d.modules.RemoveFunc(func(m *module) bool { return m.ctx == x })
	d.funcs.RemoveFunc(func(f *function) bool { return f.ctx == x })
	d.mu.Lock()
	for a, al := range d.allocs {
		if al.ctx == x {
			delete(d.allocs, a)
		}
	}
	d.mu.Unlock()
	return x.gpu.Close()
}

// Retain retains the primary context of a device and returns its handle.
func (d *Driver) Retain(dev int32) (handle.ID, error) {
	x, err := d.device(dev)
	if err != nil {
		return 0, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if x.primary == nil {
		g, err := d.ready.Load().drv.Open(int(dev))
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

// Alive reports whether a handle is that of a context.
func (d *Driver) Alive(id handle.ID) bool {
	_, ok := d.contexts.Get(id)
	return ok
}

// DevicePrimaryCtxRetain is cuDevicePrimaryCtxRetain.
func (d *Driver) DevicePrimaryCtxRetain(c Call, out cmem.Ptr) error {
	id, err := d.Retain(c.dev.num)
	return cmem.Put(out, id, err)
}

// DevicePrimaryCtxRelease is cuDevicePrimaryCtxRelease.
func (d *Driver) DevicePrimaryCtxRelease(c Call) error {
	return d.dropPrimary(c.dev, 1, gpu.ErrInvalidContext)
}

// DevicePrimaryCtxReset is cuDevicePrimaryCtxReset: the context ends even if it
// is retained.
func (d *Driver) DevicePrimaryCtxReset(c Call) error {
	return d.dropPrimary(c.dev, math.MaxInt, nil)
}

// dropPrimary drops references to the primary context; none is the answer if
// there is no such context.
func (d *Driver) dropPrimary(x *device, refs int, none error) error {
	d.mu.Lock()
	old := x.primary
	if x.refs -= refs; x.refs <= 0 {
		x.primary, x.refs = nil, 0
	}
	ended := x.primary == nil
	d.mu.Unlock()
	switch {
	case old == nil:
		return none
	case ended:
		return d.leave(old)
	}
	return nil
}

// DevicePrimaryCtxSetFlags is cuDevicePrimaryCtxSetFlags.
func (d *Driver) DevicePrimaryCtxSetFlags(c Call, flags uint32) error {
	const sched, rest = 0x7, uint32(gpu.ContextMapHost | gpu.ContextSyncMemops)
	if flags&^(sched|rest) != 0 || flags&sched == 3 || flags&sched > 4 {
		return gpu.ErrInvalidValue
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	c.dev.flags = flags
	if c.dev.primary != nil {
		c.dev.primary.flags = flags
	}
	return nil
}

// DevicePrimaryCtxGetState is cuDevicePrimaryCtxGetState.
func (d *Driver) DevicePrimaryCtxGetState(c Call, flags, active cmem.Ptr) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	cmem.Store(flags, c.dev.flags)
	return cmem.Answer(active, int32(flag(c.dev.primary != nil)))
}
