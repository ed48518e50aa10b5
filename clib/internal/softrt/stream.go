package softrt

import (
	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/clib/internal/softcuda"
)

// StreamCreate is cudaStreamCreate.
func (r *Runtime) StreamCreate(t *softcuda.Thread, out cmem.Ptr) error {
	if err := r.ensure(t); err != nil {
		return err
	}
	return r.cuda.StreamCreate(t, out, 0)
}

// StreamCreateWithFlags is cudaStreamCreateWithFlags.
func (r *Runtime) StreamCreateWithFlags(t *softcuda.Thread, out cmem.Ptr, flags uint32) error {
	if err := r.ensure(t); err != nil {
		return err
	}
	return r.cuda.StreamCreate(t, out, flags)
}

// StreamCreateWithPriority is cudaStreamCreateWithPriority.
func (r *Runtime) StreamCreateWithPriority(t *softcuda.Thread, out cmem.Ptr, flags uint32, priority int32) error {
	if err := r.ensure(t); err != nil {
		return err
	}
	return r.cuda.StreamCreateWithPriority(t, out, flags, priority)
}

// StreamDestroy is cudaStreamDestroy.
func (r *Runtime) StreamDestroy(t *softcuda.Thread, id handle.ID) error {
	if err := r.ensure(t); err != nil {
		return err
	}
	return r.cuda.StreamDestroy(t, id)
}

// StreamSynchronize is cudaStreamSynchronize.
func (r *Runtime) StreamSynchronize(t *softcuda.Thread, id handle.ID) error {
	if err := r.ensure(t); err != nil {
		return err
	}
	return r.cuda.StreamSynchronize(t, id)
}

// StreamQuery is cudaStreamQuery.
func (r *Runtime) StreamQuery(t *softcuda.Thread, id handle.ID) error {
	if err := r.ensure(t); err != nil {
		return err
	}
	return r.cuda.StreamQuery(t, id)
}

// StreamWaitEvent is cudaStreamWaitEvent.
func (r *Runtime) StreamWaitEvent(t *softcuda.Thread, id, ev handle.ID, flags uint32) error {
	if err := r.ensure(t); err != nil {
		return err
	}
	return r.cuda.StreamWaitEvent(t, id, ev, flags)
}

// StreamAddCallback is cudaStreamAddCallback.
func (r *Runtime) StreamAddCallback(t *softcuda.Thread, id handle.ID, fn, user cmem.Ptr, flags uint32) error {
	if err := r.ensure(t); err != nil {
		return err
	}
	return r.cuda.StreamAddCallback(t, id, fn, user, flags)
}

// StreamGetFlags is cudaStreamGetFlags.
func (r *Runtime) StreamGetFlags(t *softcuda.Thread, id handle.ID, out cmem.Ptr) error {
	if err := r.ensure(t); err != nil {
		return err
	}
	return r.cuda.StreamGetFlags(t, id, out)
}

// StreamGetPriority is cudaStreamGetPriority.
func (r *Runtime) StreamGetPriority(t *softcuda.Thread, id handle.ID, out cmem.Ptr) error {
	if err := r.ensure(t); err != nil {
		return err
	}
	return r.cuda.StreamGetPriority(t, id, out)
}

// StreamGetId is cudaStreamGetId.
func (r *Runtime) StreamGetId(t *softcuda.Thread, id handle.ID, out cmem.Ptr) error {
	if err := r.ensure(t); err != nil {
		return err
	}
	return r.cuda.StreamGetId(t, id, out)
}

// StreamGetDevice is cudaStreamGetDevice.
func (r *Runtime) StreamGetDevice(t *softcuda.Thread, id handle.ID, out cmem.Ptr) error {
	if err := r.ensure(t); err != nil {
		return err
	}
	return r.cuda.StreamGetDevice(t, id, out)
}

// StreamIsCapturing is cudaStreamIsCapturing.
func (r *Runtime) StreamIsCapturing(t *softcuda.Thread, id handle.ID, out cmem.Ptr) error {
	if err := r.ensure(t); err != nil {
		return err
	}
	return r.cuda.StreamIsCapturing(t, id, out)
}

// LaunchHostFunc is cudaLaunchHostFunc.
func (r *Runtime) LaunchHostFunc(t *softcuda.Thread, id handle.ID, fn, user cmem.Ptr) error {
	if err := r.ensure(t); err != nil {
		return err
	}
	return r.cuda.LaunchHostFunc(t, id, fn, user)
}
