package softcuda

import (
	"errors"
	"structs"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/gpu"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
)

// CtxCreate is cuCtxCreate_v2. The new context becomes current.
func (d *Driver) CtxCreate(c Call, out cmem.Ptr, flags uint32) error {
	if c.Depth == maxDepth {
		return gpu.ErrOutOfMemory
	}
	x := &context{dev: c.dev.num, flags: flags}
	err := d.visit(x.dev, func(g gpu.Device) error {
		made, err := g.NewContext(gpu.Flags(flags))
		if err == nil {
			x.gpu = made.(*softgpu.Device)
		}
		return err
	})
	if err != nil {
		return err
	}
	d.mu.Lock()
	err = d.enter(x)
	d.mu.Unlock()
	if err != nil {
		return errors.Join(err, x.gpu.Close())
	}
	c.push(x.id)
	return cmem.Answer(out, x.id)
}

// CtxCreateAffinity is cuCtxCreate_v3. Limits on multiprocessors are not
// supported.
func (d *Driver) CtxCreateAffinity(c Call, out, params cmem.Ptr, n int32, flags uint32) error {
	if params != 0 || n != 0 {
		return gpu.ErrNotSupported
	}
	return d.CtxCreate(c, out, flags)
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
func (d *Driver) CtxCreateParams(c Call, out, params cmem.Ptr, flags uint32) error {
	var p ctxCreateParams
	if params != 0 {
		p = cmem.Load[ctxCreateParams](params)
	}
	if p.Cig != 0 {
		return gpu.ErrNotSupported
	}
	return d.CtxCreateAffinity(c, out, p.Affinity, p.NumAffinity, flags)
}

// CtxDestroy is cuCtxDestroy. Threads on which the context is current fail in
// their next call.
func (d *Driver) CtxDestroy(c Call, id handle.ID) error {
	x, err := find(d.contexts, id, gpu.ErrInvalidContext)
	if err != nil {
		return err
	}
	if x.primary {
		return gpu.ErrInvalidContext
	}
	if c.top() == id {
		c.setTop(0)
	}
	return d.leave(x)
}

// CtxPushCurrent is cuCtxPushCurrent.
func (d *Driver) CtxPushCurrent(c Call, id handle.ID) error {
	switch {
	case id == 0:
		return gpu.ErrInvalidValue
	case !d.Alive(id):
		return gpu.ErrInvalidContext
	case !c.push(id):
		return gpu.ErrOutOfMemory
	}
	return nil
}

// CtxPopCurrent is cuCtxPopCurrent.
func (d *Driver) CtxPopCurrent(c Call, out cmem.Ptr) error {
	id := c.top()
	if id == 0 {
		return gpu.ErrInvalidContext
	}
	c.setTop(0)
	cmem.StoreUnlessNull(out, id)
	return nil
}

// CtxSetCurrent is cuCtxSetCurrent.
func (d *Driver) CtxSetCurrent(c Call, id handle.ID) error {
	if id != 0 && !d.Alive(id) {
		return gpu.ErrInvalidContext
	}
	c.setTop(id)
	return nil
}

// CtxGetCurrent is cuCtxGetCurrent. It returns NULL if there is none.
func (d *Driver) CtxGetCurrent(c Call, out cmem.Ptr) error { return cmem.Answer(out, c.top()) }

// CtxGetDevice is cuCtxGetDevice.
func (d *Driver) CtxGetDevice(c Call, out cmem.Ptr) error { return cmem.Answer(out, c.ctx.dev) }

// CtxGetFlags is cuCtxGetFlags.
func (d *Driver) CtxGetFlags(c Call, out cmem.Ptr) error { return cmem.Answer(out, c.ctx.flags) }

// CtxGetId is cuCtxGetId.
func (d *Driver) CtxGetId(c Call, id handle.ID, out cmem.Ptr) error {
	x, err := d.contextOrCurrent(c, id)
	if err != nil {
		return err
	}
	return cmem.Answer(out, x.num)
}

// CtxGetApiVersion is cuCtxGetApiVersion.
func (d *Driver) CtxGetApiVersion(c Call, id handle.ID, out cmem.Ptr) error {
	_, err := d.contextOrCurrent(c, id)
	return cmem.Put(out, uint32(3020), err)
}

// contextOrCurrent looks a context up; 0 is the current one.
func (d *Driver) contextOrCurrent(c Call, id handle.ID) (*context, error) {
	if id == 0 {
		return d.current(c.Thread)
	}
	return find(d.contexts, id, gpu.ErrInvalidContext)
}

// The priorities of streams, as on an H200. They are kept and reported; the software
// GPU runs the work of all streams alike, which a priority allows.
const leastPriority, greatestPriority = int32(0), int32(-5)

// CtxGetStreamPriorityRange is cuCtxGetStreamPriorityRange.
func (d *Driver) CtxGetStreamPriorityRange(_ Call, least, greatest cmem.Ptr) error {
	cmem.StoreUnlessNull(least, leastPriority)
	cmem.StoreUnlessNull(greatest, greatestPriority)
	return nil
}

// CtxSynchronize is cuCtxSynchronize.
func (d *Driver) CtxSynchronize(c Call) error { return c.ctx.gpu.Synchronize() }

// limits are CUlimit by number, with the values of a new context. They concern
// kernels of programs, which do not run here: they are only kept and reported.
var limits = [...]uint64{
	1024,    // STACK_SIZE
	1 << 20, // PRINTF_FIFO_SIZE
	8 << 20, // MALLOC_HEAP_SIZE
	2,       // DEV_RUNTIME_SYNC_DEPTH
	2048,    // DEV_RUNTIME_PENDING_LAUNCH_COUNT
	64,      // MAX_L2_FETCH_GRANULARITY
	0,       // PERSISTING_L2_CACHE_SIZE
}

// CtxGetLimit is cuCtxGetLimit.
func (d *Driver) CtxGetLimit(c Call, out cmem.Ptr, limit int32) error {
	if limit < 0 || int(limit) >= len(limits) {
		return gpu.ErrInvalidValue
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	v, ok := c.ctx.limits[limit]
	if !ok {
		v = limits[limit]
	}
	return cmem.Answer(out, v)
}

// CtxSetLimit is cuCtxSetLimit.
func (d *Driver) CtxSetLimit(c Call, limit int32, v uint64) error {
	if limit < 0 || int(limit) >= len(limits) {
		return gpu.ErrInvalidValue
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.ctx.limits == nil {
		c.ctx.limits = map[int32]uint64{}
	}
	c.ctx.limits[limit] = v
	return nil
}
