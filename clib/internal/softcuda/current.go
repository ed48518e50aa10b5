package softcuda

import (
	"errors"
	"structs"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/gpu"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
)

// CtxCreate is cuCtxCreate_v2: the new context becomes the thread's.
func (d *Driver) CtxCreate(t *Thread, out cmem.Ptr, flags uint32, dev int32) error {
	if _, err := d.device(dev); err != nil {
		return err
	}
	if t.Depth == maxDepth {
		return gpu.ErrOutOfMemory
	}
	c := &context{dev: dev, flags: flags}
	err := d.visit(dev, func(x gpu.Device) error {
		g, err := x.NewContext(gpu.Flags(flags))
		if err == nil {
			c.gpu = g.(*softgpu.Device)
		}
		return err
	})
	if err != nil {
		return err
	}
	d.mu.Lock()
	err = d.enter(c)
	d.mu.Unlock()
	if err != nil {
		return errors.Join(err, c.gpu.Close())
	}
	t.push(c.id)
	cmem.Store(out, c.id)
	return nil
}

// CtxCreateAffinity is cuCtxCreate_v3. Limits on multiprocessors mean nothing
// here and are refused.
func (d *Driver) CtxCreateAffinity(t *Thread, out, params cmem.Ptr, n int32, flags uint32, dev int32) error {
	if params != 0 || n != 0 {
		return gpu.ErrNotSupported
	}
	return d.CtxCreate(t, out, flags, dev)
}

// ctxCreateParams is CUctxCreateParams.
type ctxCreateParams struct {
	_           structs.HostLayout
	Affinity    cmem.Ptr
	NumAffinity int32
	Pad0        [4]byte
	Cig         cmem.Ptr
}

// CtxCreateParams is cuCtxCreate_v4.
func (d *Driver) CtxCreateParams(t *Thread, out, params cmem.Ptr, flags uint32, dev int32) error {
	if params != 0 {
		p := cmem.Load[ctxCreateParams](params)
		if p.Cig != 0 {
			return gpu.ErrNotSupported
		}
		return d.CtxCreateAffinity(t, out, p.Affinity, p.NumAffinity, flags, dev)
	}
	return d.CtxCreate(t, out, flags, dev)
}

// CtxDestroy is cuCtxDestroy. Other threads that have the context current find
// out with their next call.
func (d *Driver) CtxDestroy(t *Thread, id handle.ID) error {
	c, err := d.context(id)
	if err != nil {
		return err
	}
	if c.primary {
		return gpu.ErrInvalidContext
	}
	if t.top() == id {
		t.setTop(0)
	}
	return d.leave(c)
}

// CtxPushCurrent is cuCtxPushCurrent.
func (d *Driver) CtxPushCurrent(t *Thread, id handle.ID) error {
	if _, err := d.context(id); err != nil {
		if id == 0 && errors.Is(err, gpu.ErrInvalidContext) {
			return gpu.ErrInvalidValue
		}
		return err
	}
	if !t.push(id) {
		return gpu.ErrOutOfMemory
	}
	return nil
}

// CtxPopCurrent is cuCtxPopCurrent.
func (d *Driver) CtxPopCurrent(t *Thread, out cmem.Ptr) error {
	if _, err := d.machine(); err != nil {
		return err
	}
	id := t.top()
	if id == 0 {
		return gpu.ErrInvalidContext
	}
	t.setTop(0)
	if out != 0 {
		cmem.Store(out, id)
	}
	return nil
}

// CtxSetCurrent is cuCtxSetCurrent.
func (d *Driver) CtxSetCurrent(t *Thread, id handle.ID) error {
	if id != 0 {
		if _, err := d.context(id); err != nil {
			return err
		}
	} else if _, err := d.machine(); err != nil {
		return err
	}
	t.setTop(id)
	return nil
}

// CtxGetCurrent is cuCtxGetCurrent: NULL where there is none.
func (d *Driver) CtxGetCurrent(t *Thread, out cmem.Ptr) error {
	if _, err := d.machine(); err != nil {
		return err
	}
	cmem.Store(out, t.top())
	return nil
}

// CtxGetDevice is cuCtxGetDevice.
func (d *Driver) CtxGetDevice(t *Thread, out cmem.Ptr) error {
	c, err := d.current(t)
	if err != nil {
		return err
	}
	cmem.Store(out, c.dev)
	return nil
}

// CtxGetFlags is cuCtxGetFlags.
func (d *Driver) CtxGetFlags(t *Thread, out cmem.Ptr) error {
	c, err := d.current(t)
	if err != nil {
		return err
	}
	cmem.Store(out, c.flags)
	return nil
}

// CtxGetId is cuCtxGetId; NULL means the current context.
func (d *Driver) CtxGetId(t *Thread, id handle.ID, out cmem.Ptr) error {
	c, err := d.contextOrCurrent(t, id)
	if err != nil {
		return err
	}
	cmem.Store(out, c.num)
	return nil
}

// CtxGetApiVersion is cuCtxGetApiVersion.
func (d *Driver) CtxGetApiVersion(t *Thread, id handle.ID, out cmem.Ptr) error {
	if _, err := d.contextOrCurrent(t, id); err != nil {
		return err
	}
	cmem.Store(out, uint32(3020))
	return nil
}

func (d *Driver) contextOrCurrent(t *Thread, id handle.ID) (*context, error) {
	if id == 0 {
		return d.current(t)
	}
	return d.context(id)
}

// CtxGetStreamPriorityRange is cuCtxGetStreamPriorityRange: there is only one.
func (d *Driver) CtxGetStreamPriorityRange(t *Thread, least, greatest cmem.Ptr) error {
	if _, err := d.current(t); err != nil {
		return err
	}
	for _, out := range []cmem.Ptr{least, greatest} {
		if out != 0 {
			cmem.Store(out, int32(0))
		}
	}
	return nil
}

// CtxSynchronize is cuCtxSynchronize.
func (d *Driver) CtxSynchronize(t *Thread) error {
	c, err := d.current(t)
	if err != nil {
		return err
	}
	return c.gpu.Synchronize()
}
