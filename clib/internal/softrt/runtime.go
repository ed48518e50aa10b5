package softrt

import (
	"sync"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/clib/internal/softcuda"
	"github.com/culvert-io/culvert/gpu"
)

// Codes that only the runtime has.
const (
	errInvalidPitch     gpu.Code = 12
	errInvalidDirection gpu.Code = 21
)

// A Runtime answers the runtime API.
type Runtime struct {
	cuda *softcuda.Driver

	mu      sync.Mutex
	primary map[int32]handle.ID // the primary contexts that the runtime retains
}

// New returns a runtime on a driver, which the program may use as well.
func New(d *softcuda.Driver) *Runtime {
	return &Runtime{cuda: d, primary: map[int32]handle.ID{}}
}

// Prepare looks up what a function needs, as softcuda does. If that is a context
// and the thread has none, the primary one of its device becomes current.
func (r *Runtime) Prepare(t *softcuda.Thread, n softcuda.Need, arg uint64) (softcuda.Call, error) {
	err := r.cuda.Start()
	if err == nil && n != softcuda.NeedDriver && n != softcuda.NeedDevice {
		err = r.ensure(t)
	}
	if err != nil {
		return softcuda.Call{}, err
	}
	return r.cuda.Prepare(t, n, arg)
}

// ensure keeps the current context, which the driver API may have set, or makes
// the primary one current.
func (r *Runtime) ensure(t *softcuda.Thread) error {
	if _, ok := r.cuda.Current(t); ok {
		return nil
	}
	return r.use(t, t.Device)
}

// use makes the primary context of a device current.
func (r *Runtime) use(t *softcuda.Thread, dev int32) error {
	id, err := r.retain(dev)
	if err != nil {
		return err
	}
	return r.cuda.CtxSetCurrent(softcuda.Call{Thread: t}, id)
}

// retain retains the primary context of a device, once for the whole runtime.
func (r *Runtime) retain(dev int32) (handle.ID, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if id, ok := r.primary[dev]; ok && r.cuda.Alive(id) {
		return id, nil
	}
	id, err := r.cuda.Retain(dev)
	if err == nil {
		r.primary[dev] = id
	}
	return id, err
}

// device is the device of the thread.
func (r *Runtime) device(t *softcuda.Thread) int32 {
	if dev, ok := r.cuda.Current(t); ok {
		return dev
	}
	return t.Device
}

// SetDevice is cudaSetDevice.
func (r *Runtime) SetDevice(c softcuda.Call, dev int32) error {
	if err := r.use(c.Thread, dev); err != nil {
		return err
	}
	c.Device = dev
	return nil
}

// GetDevice is cudaGetDevice.
func (r *Runtime) GetDevice(c softcuda.Call, out cmem.Ptr) error {
	return cmem.Answer(out, r.device(c.Thread))
}

// GetDeviceCount is cudaGetDeviceCount.
func (r *Runtime) GetDeviceCount(c softcuda.Call, out cmem.Ptr) error {
	if err := r.cuda.Start(); err != nil {
		cmem.Store(out, int32(0))
		return gpu.ErrNoDevice
	}
	return r.cuda.DeviceGetCount(c, out)
}

// InitDevice is cudaInitDevice.
func (r *Runtime) InitDevice(_ softcuda.Call, dev int32, _, _ uint32) error {
	_, err := r.retain(dev)
	return err
}

// DeviceReset is cudaDeviceReset: everything on the device ends.
func (r *Runtime) DeviceReset(c softcuda.Call) error {
	dev := r.device(c.Thread)
	r.mu.Lock()
	delete(r.primary, dev)
	r.mu.Unlock()
	if err := r.cuda.CtxSetCurrent(c, 0); err != nil {
		return err
	}
	c, err := r.cuda.Prepare(c.Thread, softcuda.NeedDevice, uint64(dev))
	if err != nil {
		return err
	}
	return r.cuda.DevicePrimaryCtxReset(c)
}

// SetDeviceFlags is cudaSetDeviceFlags.
func (r *Runtime) SetDeviceFlags(c softcuda.Call, flags uint32) error {
	c, err := r.cuda.Prepare(c.Thread, softcuda.NeedDevice, uint64(c.Device))
	if err != nil {
		return err
	}
	return r.cuda.DevicePrimaryCtxSetFlags(c, flags)
}

// GetLastError is cudaGetLastError, which resets it.
func (r *Runtime) GetLastError(c softcuda.Call) int32 {
	e := c.LastError
	c.LastError = 0
	return e
}

// PeekAtLastError is cudaPeekAtLastError.
func (r *Runtime) PeekAtLastError(c softcuda.Call) int32 { return c.LastError }

// Refuse fails with a code: the shim calls it for functions that are not supported,
// so that cudaGetLastError reports them.
func (r *Runtime) Refuse(_ softcuda.Call, code int32) error { return gpu.Code(code) }

// Status returns the runtime's code for an error and keeps it for
// cudaGetLastError. "Not ready" is not kept.
func (r *Runtime) Status(t *softcuda.Thread, err error) gpu.Code {
	code := gpu.CodeOf(err)
	if code != gpu.Success && code != gpu.ErrNotReady {
		t.LastError = int32(code)
	}
	return code
}

// StreamCreate is cudaStreamCreate.
func (r *Runtime) StreamCreate(c softcuda.Call, out cmem.Ptr) error {
	return r.cuda.StreamCreate(c, out, 0)
}

// EventCreate is cudaEventCreate.
func (r *Runtime) EventCreate(c softcuda.Call, out cmem.Ptr) error {
	return r.cuda.EventCreate(c, out, 0)
}
