package softrt

import (
	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/clib/internal/softcuda"
)

// EventCreate is cudaEventCreate.
func (r *Runtime) EventCreate(t *softcuda.Thread, out cmem.Ptr) error {
	if err := r.ensure(t); err != nil {
		return err
	}
	return r.cuda.EventCreate(t, out, 0)
}

// EventCreateWithFlags is cudaEventCreateWithFlags.
func (r *Runtime) EventCreateWithFlags(t *softcuda.Thread, out cmem.Ptr, flags uint32) error {
	if err := r.ensure(t); err != nil {
		return err
	}
	return r.cuda.EventCreate(t, out, flags)
}

// EventDestroy is cudaEventDestroy.
func (r *Runtime) EventDestroy(t *softcuda.Thread, id handle.ID) error {
	if err := r.ensure(t); err != nil {
		return err
	}
	return r.cuda.EventDestroy(t, id)
}

// EventRecord is cudaEventRecord.
func (r *Runtime) EventRecord(t *softcuda.Thread, id, to handle.ID) error {
	if err := r.ensure(t); err != nil {
		return err
	}
	return r.cuda.EventRecord(t, id, to)
}

// EventRecordWithFlags is cudaEventRecordWithFlags.
func (r *Runtime) EventRecordWithFlags(t *softcuda.Thread, id, to handle.ID, flags uint32) error {
	if err := r.ensure(t); err != nil {
		return err
	}
	return r.cuda.EventRecordWithFlags(t, id, to, flags)
}

// EventQuery is cudaEventQuery.
func (r *Runtime) EventQuery(t *softcuda.Thread, id handle.ID) error {
	if err := r.ensure(t); err != nil {
		return err
	}
	return r.cuda.EventQuery(t, id)
}

// EventSynchronize is cudaEventSynchronize.
func (r *Runtime) EventSynchronize(t *softcuda.Thread, id handle.ID) error {
	if err := r.ensure(t); err != nil {
		return err
	}
	return r.cuda.EventSynchronize(t, id)
}

// EventElapsedTime is cudaEventElapsedTime.
func (r *Runtime) EventElapsedTime(t *softcuda.Thread, out cmem.Ptr, start, end handle.ID) error {
	if err := r.ensure(t); err != nil {
		return err
	}
	return r.cuda.EventElapsedTime(t, out, start, end)
}
