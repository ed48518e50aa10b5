package gpu

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/culvert-io/culvert/gpu"
	abi "github.com/culvert-io/culvert/internal/abi/cuda"
)

// A Device is a handle of a context. It owns what was allocated and registered through
// it. It is a gpu.Device.
type Device struct {
	ctx    *context
	closed atomic.Bool
}

var _ gpu.Device = (*Device)(nil)

// GPU returns the card of the context.
func (x *Device) GPU() *GPU { return x.ctx.card }

// check returns the error of any call, if the device or its context is not usable.
func (x *Device) check(op string) error {
	if x.closed.Load() {
		return gpu.Fail(op, gpu.ErrContextDestroyed, "the device was closed")
	}
	return x.ctx.err(op)
}

// Info describes the GPU.
func (x *Device) Info() gpu.Info { return x.ctx.card.info }

// Attribute returns what the model says.
func (x *Device) Attribute(a gpu.Attribute) (int, error) {
	v, ok := x.ctx.card.attributes[a]
	if !ok {
		return 0, gpu.Fail(fmt.Sprintf("cuDeviceGetAttribute(%v)", a), gpu.ErrInvalidValue, "unknown attribute")
	}
	return v, nil
}

// Synchronize waits for all work of the context.
func (x *Device) Synchronize() error {
	return x.synchronize("cuCtxSynchronize()")
}

func (x *Device) synchronize(op string) error {
	if err := x.check(op); err != nil {
		return err
	}
	x.ctx.drain(true)
	return x.ctx.err(op)
}

// FlushWrites has nothing to do: writes of other devices are visible at once.
func (x *Device) FlushWrites(s gpu.Scope) error {
	op := fmt.Sprintf("cuFlushGPUDirectRDMAWrites(%d)", s)
	if err := x.check(op); err != nil {
		return err
	}
	switch {
	case s != gpu.ScopeOwner && s != gpu.ScopeAllDevices:
		return gpu.Fail(op, gpu.ErrInvalidValue, "unknown scope")
	case !x.ctx.card.has(abi.AttrGPUDirectRDMA):
		return gpu.Fail(op, gpu.ErrNotSupported, x.ctx.card.model.Name+" has no GPU_DIRECT_RDMA_SUPPORTED")
	}
	return nil
}

const contextFlags = gpu.ContextSchedSpin | gpu.ContextSchedYield | gpu.ContextSchedBlocking | gpu.ContextMapHost | gpu.ContextSyncMemops

// NewContext creates a further context on the same GPU.
func (x *Device) NewContext(f gpu.Flags) (gpu.Device, error) {
	op := fmt.Sprintf("cuCtxCreate(%#x, %d)", uint32(f), x.ctx.card.index)
	if x.closed.Load() {
		return nil, gpu.Fail(op, gpu.ErrContextDestroyed, "the device was closed")
	}
	const sched = gpu.ContextSchedSpin | gpu.ContextSchedYield | gpu.ContextSchedBlocking
	if s := f & sched; f&^contextFlags != 0 || s&(s-1) != 0 {
		return nil, gpu.Fail(op, gpu.ErrInvalidValue, "flags")
	}
	d := x.ctx.drv
	d.ctxMu.Lock()
	defer d.ctxMu.Unlock()
	if d.closed {
		return nil, gpu.Fail(op, gpu.ErrDeinitialized, "the driver was closed")
	}
	c, err := d.newContext(op, x.ctx.card)
	if err != nil {
		return nil, err
	}
	c.handles++
	return &Device{ctx: c}, nil
}

// Bind locks the goroutine to its thread. There is no current context to set.
func (x *Device) Bind() (unbind func(), err error) {
	if err := x.check("cuCtxPushCurrent()"); err != nil {
		return nil, err
	}
	runtime.LockOSThread()
	return sync.OnceFunc(runtime.UnlockOSThread), nil
}

// Close frees what was allocated through the Device, unregisters what was
// registered, and destroys the context if no other handle has it.
func (x *Device) Close() error {
	if x.closed.Swap(true) {
		return gpu.Fail("cuDevicePrimaryCtxRelease()", gpu.ErrContextDestroyed, "closed before")
	}
	x.ctx.release()
	x.ctx.drain(true)
	x.ctx.drv.removeAll(func(r *region) bool { return r.dev == x })
	return nil
}
