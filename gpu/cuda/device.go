package cuda

import (
	"bytes"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dl"
)

// A Device is a context on a GPU. Besides [gpu.Device] it gives its CUcontext,
// and the IPC handle and the number of an allocation.
type Device struct {
	drv     *Driver
	symbols *symbols
	dev     int32
	info    gpu.Info
	ctx     uintptr
	primary bool
	closed  atomic.Bool
	allocs  allocations
	objects sync.Map // of *object: open streams, events and modules
	reached sync.Map // of contexts on other GPUs whose memory was made accessible
}

var _ gpu.Device = (*Device)(nil)

func newDevice(d *Driver, dev int32, info gpu.Info, ctx uintptr, primary bool) *Device {
	return &Device{drv: d, symbols: &d.symbols, dev: dev, info: info, ctx: ctx, primary: primary}
}

// enter locks the goroutine to its thread and makes the context current. The
// caller must call leave if it succeeds.
func (d *Device) enter() gpu.Code {
	if d.closed.Load() {
		return gpu.ErrContextDestroyed
	}
	return d.enterClosed()
}

// enterClosed is enter for Close itself.
func (d *Device) enterClosed() gpu.Code {
	runtime.LockOSThread()
	c := d.symbols.cuCtxSetCurrent.call(d.ctx)
	if c != gpu.Success {
		runtime.UnlockOSThread()
	}
	return c
}

func (d *Device) leave() { runtime.UnlockOSThread() }

// call calls s with the context current.
func (d *Device) call(s *symbol, args ...uintptr) gpu.Code {
	if d.closed.Load() {
		return gpu.ErrContextDestroyed
	}
	if s.fn == 0 {
		return gpu.ErrNotSupported
	}
	if len(args) > maxStepArgs {
		return d.callLong(s, args)
	}
	c, _ := dl.Chain(d.current(), step(s, args))
	return gpu.Code(c)
}

// callLong is call for functions with more arguments than a step has.
func (d *Device) callLong(s *symbol, args []uintptr) gpu.Code {
	if c := d.enter(); c != gpu.Success {
		return c
	}
	c := s.call(args...)
	d.leave()
	return c
}

// current is the step that makes the context current. The steps after it run on
// the same thread before anything else does.
func (d *Device) current() dl.Step {
	return dl.Step{Fn: d.symbols.cuCtxSetCurrent.fn, Args: [maxStepArgs]uintptr{d.ctx}}
}

// maxStepArgs is the number of arguments that a step has.
const maxStepArgs = len(dl.Step{}.Args)

func step(s *symbol, args []uintptr) dl.Step {
	st := dl.Step{Fn: s.fn}
	copy(st.Args[:], args)
	return st
}

// unusable is the code for use of a closed stream, event or module.
func (d *Device) unusable() gpu.Code {
	if d.closed.Load() {
		return gpu.ErrContextDestroyed
	}
	return gpu.ErrInvalidHandle
}

func (d *Device) fail(s *symbol, c gpu.Code, detail string, args ...any) error {
	return d.drv.fail(s, c, detail, args...)
}

func (d *Device) check(s *symbol, c gpu.Code, args ...any) error { return d.drv.check(s, c, args...) }

// Info describes the GPU.
func (d *Device) Info() gpu.Info { return d.info }

// Context is the CUcontext.
func (d *Device) Context() uintptr { return d.ctx }

// Attribute reads a device attribute. It fails with ErrInvalidValue if the
// driver does not know the attribute.
func (d *Device) Attribute(a gpu.Attribute) (int, error) { return d.drv.attribute(d.dev, a) }

// MemInfo is the GPU's free and total memory.
func (d *Device) MemInfo() (free, total uint64, err error) {
	v := new([2]uint64)
	s := &d.symbols.cuMemGetInfo
	err = d.check(s, d.call(s, ref(&v[0]), ref(&v[1])))
	return v[0], v[1], err
}

// Synchronize waits for all work of the context.
func (d *Device) Synchronize() error {
	s := &d.symbols.cuCtxSynchronize
	return d.check(s, d.call(s))
}

// FlushWrites makes writes of other devices visible.
func (d *Device) FlushWrites(scope gpu.Scope) error {
	const currentContext = 0 // CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX
	s := &d.symbols.cuFlushGPUDirectRDMAWrites
	return d.check(s, d.call(s, currentContext, uintptr(scope)), int(scope))
}

// NewContext creates a further context on the same GPU.
func (d *Device) NewContext(f gpu.Flags) (gpu.Device, error) {
	if d.closed.Load() {
		return nil, d.fail(&d.symbols.cuCtxCreate_v2, gpu.ErrContextDestroyed, "", f, d.dev)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s, args := &d.symbols.cuCtxCreate_v2, []any{f, d.dev}
	if s.fn == 0 {
		s, args = &d.symbols.cuCtxCreate_v4, []any{0, f, d.dev} // 0: no parameters
	}
	ctx, err := get[uintptr](d.drv, s, args...)
	if err != nil {
		return nil, err
	}
	// The driver has pushed the new context onto the thread's stack.
	if _, err := get[uintptr](d.drv, &d.symbols.cuCtxPopCurrent); err != nil {
		return nil, errors.Join(err, d.destroy(ctx))
	}
	return newDevice(d.drv, d.dev, d.info, ctx, false), nil
}

// Bind locks the goroutine to its thread and pushes the context.
func (d *Device) Bind() (unbind func(), err error) {
	push, pop := &d.symbols.cuCtxPushCurrent, &d.symbols.cuCtxPopCurrent
	if d.closed.Load() {
		return nil, d.fail(push, gpu.ErrContextDestroyed, "")
	}
	runtime.LockOSThread()
	if c := push.call(d.ctx); c != gpu.Success {
		runtime.UnlockOSThread()
		return nil, d.fail(push, c, "")
	}
	old, bound := new(uintptr), true
	return func() {
		if !bound {
			return
		}
		bound = false
		pop.call(ref(old)) // fails only if the thread has no context left, which is fine
		runtime.UnlockOSThread()
	}, nil
}

// Close closes the streams, events and modules of the Device, frees and
// unregisters its memory, and releases the context. It frees explicitly because
// a primary context lives on if the process has other users of it.
func (d *Device) Close() error {
	s := &d.symbols.cuDevicePrimaryCtxRelease
	if !d.primary {
		s = &d.symbols.cuCtxDestroy
	}
	if d.closed.Load() {
		return d.fail(s, gpu.ErrContextDestroyed, "already closed")
	}
	err := d.closeObjects()
	if d.closed.Swap(true) {
		return d.fail(s, gpu.ErrContextDestroyed, "already closed")
	}
	err = errors.Join(err, d.freeAll())
	if !d.primary {
		return errors.Join(err, d.destroy(d.ctx))
	}
	return errors.Join(err, d.check(s, s.call(uintptr(d.dev)), d.dev))
}

func (d *Device) destroy(ctx uintptr) error {
	s := &d.symbols.cuCtxDestroy
	return d.check(s, s.call(ctx))
}

// cString is the text before the first NUL.
func cString(b []byte) string {
	text, _, _ := bytes.Cut(b, []byte{0})
	return string(text)
}
