package softrt

import (
	"sync"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/clib/internal/softcuda"
	"github.com/culvert-io/culvert/gpu"
)

// Codes that the runtime has beside the driver's.
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

// New returns a runtime on a driver, which others may use as well.
func New(d *softcuda.Driver) *Runtime {
	return &Runtime{cuda: d, primary: map[int32]handle.ID{}}
}

// ensure makes sure that the thread has a current context: the one that it was
// given through the driver API, or the primary one of its device.
func (r *Runtime) ensure(t *softcuda.Thread) error {
	if _, ok := r.cuda.Current(t); ok {
		return nil
	}
	if err := r.cuda.Start(); err != nil {
		return err
	}
	id, err := r.retain(t.Device)
	if err != nil {
		return err
	}
	return r.cuda.CtxSetCurrent(t, id)
}

// retain holds the primary context of a device, once for the whole runtime.
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

// SetDevice is cudaSetDevice.
func (r *Runtime) SetDevice(t *softcuda.Thread, dev int32) error {
	if err := r.cuda.Start(); err != nil {
		return err
	}
	id, err := r.retain(dev)
	if err != nil {
		return err
	}
	t.Device = dev
	return r.cuda.CtxSetCurrent(t, id)
}

// GetDevice is cudaGetDevice.
func (r *Runtime) GetDevice(t *softcuda.Thread, out cmem.Ptr) error {
	if err := r.cuda.Start(); err != nil {
		return err
	}
	dev := t.Device
	if cur, ok := r.cuda.Current(t); ok {
		dev = cur
	}
	cmem.Store(out, dev)
	return nil
}

// GetDeviceCount is cudaGetDeviceCount.
func (r *Runtime) GetDeviceCount(t *softcuda.Thread, out cmem.Ptr) error {
	if err := r.cuda.Start(); err != nil {
		cmem.Store(out, int32(0))
		return gpu.ErrNoDevice
	}
	return r.cuda.DeviceGetCount(t, out)
}

// InitDevice is cudaInitDevice.
func (r *Runtime) InitDevice(_ *softcuda.Thread, dev int32, _, _ uint32) error {
	if err := r.cuda.Start(); err != nil {
		return err
	}
	_, err := r.retain(dev)
	return err
}

// DeviceSynchronize is cudaDeviceSynchronize.
func (r *Runtime) DeviceSynchronize(t *softcuda.Thread) error {
	if err := r.ensure(t); err != nil {
		return err
	}
	return r.cuda.CtxSynchronize(t)
}

// DeviceReset is cudaDeviceReset: everything on the device is gone.
func (r *Runtime) DeviceReset(t *softcuda.Thread) error {
	if err := r.cuda.Start(); err != nil {
		return err
	}
	dev := t.Device
	if cur, ok := r.cuda.Current(t); ok {
		dev = cur
	}
	r.mu.Lock()
	delete(r.primary, dev)
	r.mu.Unlock()
	if err := r.cuda.CtxSetCurrent(t, 0); err != nil {
		return err
	}
	return r.cuda.DevicePrimaryCtxReset(t, dev)
}

// DeviceGetAttribute is cudaDeviceGetAttribute; the numbers are the driver's.
func (r *Runtime) DeviceGetAttribute(t *softcuda.Thread, out cmem.Ptr, attr, dev int32) error {
	if err := r.cuda.Start(); err != nil {
		return err
	}
	return r.cuda.DeviceGetAttribute(t, out, attr, dev)
}

// DeviceGetLimit is cudaDeviceGetLimit.
func (r *Runtime) DeviceGetLimit(t *softcuda.Thread, out cmem.Ptr, limit int32) error {
	if err := r.ensure(t); err != nil {
		return err
	}
	return r.cuda.CtxGetLimit(t, out, limit)
}

// DeviceSetLimit is cudaDeviceSetLimit.
func (r *Runtime) DeviceSetLimit(t *softcuda.Thread, limit int32, v uint64) error {
	if err := r.ensure(t); err != nil {
		return err
	}
	return r.cuda.CtxSetLimit(t, limit, v)
}

// DeviceGetPCIBusId is cudaDeviceGetPCIBusId.
func (r *Runtime) DeviceGetPCIBusId(t *softcuda.Thread, out cmem.Ptr, n, dev int32) error {
	if err := r.cuda.Start(); err != nil {
		return err
	}
	return r.cuda.DeviceGetPCIBusId(t, out, n, dev)
}

// DeviceGetByPCIBusId is cudaDeviceGetByPCIBusId.
func (r *Runtime) DeviceGetByPCIBusId(t *softcuda.Thread, out, text cmem.Ptr) error {
	if err := r.cuda.Start(); err != nil {
		return err
	}
	return r.cuda.DeviceGetByPCIBusId(t, out, text)
}

// DeviceCanAccessPeer is cudaDeviceCanAccessPeer.
func (r *Runtime) DeviceCanAccessPeer(t *softcuda.Thread, out cmem.Ptr, dev, peer int32) error {
	if err := r.cuda.Start(); err != nil {
		return err
	}
	return r.cuda.DeviceCanAccessPeer(t, out, dev, peer)
}

// DeviceGetStreamPriorityRange is cudaDeviceGetStreamPriorityRange.
func (r *Runtime) DeviceGetStreamPriorityRange(t *softcuda.Thread, least, greatest cmem.Ptr) error {
	if err := r.ensure(t); err != nil {
		return err
	}
	return r.cuda.CtxGetStreamPriorityRange(t, least, greatest)
}

// DeviceFlushGPUDirectRDMAWrites is cudaDeviceFlushGPUDirectRDMAWrites.
func (r *Runtime) DeviceFlushGPUDirectRDMAWrites(t *softcuda.Thread, target, scope int32) error {
	if err := r.ensure(t); err != nil {
		return err
	}
	return r.cuda.FlushGPUDirectRDMAWrites(t, target, scope)
}

// GetDeviceFlags is cudaGetDeviceFlags.
func (r *Runtime) GetDeviceFlags(t *softcuda.Thread, out cmem.Ptr) error {
	if err := r.ensure(t); err != nil {
		return err
	}
	return r.cuda.CtxGetFlags(t, out)
}

// SetDeviceFlags is cudaSetDeviceFlags.
func (r *Runtime) SetDeviceFlags(t *softcuda.Thread, flags uint32) error {
	if err := r.cuda.Start(); err != nil {
		return err
	}
	return r.cuda.DevicePrimaryCtxSetFlags(t, t.Device, flags)
}

// DriverGetVersion is cudaDriverGetVersion.
func (r *Runtime) DriverGetVersion(t *softcuda.Thread, out cmem.Ptr) error {
	return r.cuda.DriverGetVersion(t, out)
}

// GetLastError is cudaGetLastError, which forgets it.
func (r *Runtime) GetLastError(t *softcuda.Thread) int32 {
	e := t.LastError
	t.LastError = 0
	return e
}

// PeekAtLastError is cudaPeekAtLastError.
func (r *Runtime) PeekAtLastError(t *softcuda.Thread) int32 { return t.LastError }

// Status is the runtime's code for an error, which it remembers for
// cudaGetLastError. That something is not ready yet is no error to remember.
func (r *Runtime) Status(t *softcuda.Thread, err error) int32 {
	c := int32(gpu.CodeOf(err))
	if c != 0 && gpu.Code(c) != gpu.ErrNotReady {
		t.LastError = c
	}
	return c
}
