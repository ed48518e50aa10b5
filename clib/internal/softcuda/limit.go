package softcuda

import (
	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/gpu"
)

// limits are CUlimit by number, with the values of a new context. They are for
// kernels of programs, which do not run here: they are kept and told.
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
func (d *Driver) CtxGetLimit(t *Thread, out cmem.Ptr, limit int32) error {
	c, err := d.current(t)
	if err != nil {
		return err
	}
	if limit < 0 || int(limit) >= len(limits) {
		return gpu.ErrInvalidValue
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	v, ok := c.limits[limit]
	if !ok {
		v = limits[limit]
	}
	cmem.Store(out, v)
	return nil
}

// CtxSetLimit is cuCtxSetLimit.
func (d *Driver) CtxSetLimit(t *Thread, limit int32, v uint64) error {
	c, err := d.current(t)
	if err != nil {
		return err
	}
	if limit < 0 || int(limit) >= len(limits) {
		return gpu.ErrInvalidValue
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.limits == nil {
		c.limits = map[int32]uint64{}
	}
	c.limits[limit] = v
	return nil
}
