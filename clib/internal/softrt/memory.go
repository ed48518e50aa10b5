package softrt

import (
	"structs"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/clib/internal/softcuda"
	"github.com/culvert-io/culvert/gpu"
)

// MemGetInfo is cudaMemGetInfo.
func (r *Runtime) MemGetInfo(t *softcuda.Thread, free, total cmem.Ptr) error {
	if err := r.ensure(t); err != nil {
		return err
	}
	return r.cuda.MemGetInfo(t, free, total)
}

// alloc allocates; nothing at all is no error for the runtime.
func (r *Runtime) alloc(t *softcuda.Thread, out cmem.Ptr, k gpu.Kind, n uint64, flags uint32) error {
	if err := r.ensure(t); err != nil {
		return err
	}
	var a gpu.Addr
	if n > 0 {
		var err error
		if a, err = r.cuda.Alloc(t, k, n, flags); err != nil {
			return err
		}
	}
	cmem.Store(out, a)
	return nil
}

// Malloc is cudaMalloc.
func (r *Runtime) Malloc(t *softcuda.Thread, out cmem.Ptr, n uint64) error {
	return r.alloc(t, out, gpu.KindDevice, n, 0)
}

// MallocPitch is cudaMallocPitch.
func (r *Runtime) MallocPitch(t *softcuda.Thread, out, pitch cmem.Ptr, width, height uint64) error {
	if err := r.ensure(t); err != nil {
		return err
	}
	const element = 4
	return r.cuda.MemAllocPitch(t, out, pitch, width, height, element)
}

// Free is cudaFree. NULL is fine, and the usual way to make a context.
func (r *Runtime) Free(t *softcuda.Thread, p cmem.Ptr) error {
	if err := r.ensure(t); err != nil || p == 0 {
		return err
	}
	return r.cuda.MemFree(t, gpu.Addr(p))
}

// MallocHost is cudaMallocHost.
func (r *Runtime) MallocHost(t *softcuda.Thread, out cmem.Ptr, n uint64) error {
	return r.alloc(t, out, gpu.KindHost, n, 0)
}

// HostAlloc is cudaHostAlloc.
func (r *Runtime) HostAlloc(t *softcuda.Thread, out cmem.Ptr, n uint64, flags uint32) error {
	return r.alloc(t, out, gpu.KindHost, n, flags)
}

// FreeHost is cudaFreeHost.
func (r *Runtime) FreeHost(t *softcuda.Thread, p cmem.Ptr) error {
	if err := r.ensure(t); err != nil || p == 0 {
		return err
	}
	return r.cuda.MemFreeHost(t, p)
}

// HostRegister is cudaHostRegister.
func (r *Runtime) HostRegister(t *softcuda.Thread, p cmem.Ptr, n uint64, flags uint32) error {
	if err := r.ensure(t); err != nil {
		return err
	}
	return r.cuda.MemHostRegister(t, p, n, flags)
}

// HostUnregister is cudaHostUnregister.
func (r *Runtime) HostUnregister(t *softcuda.Thread, p cmem.Ptr) error {
	if err := r.ensure(t); err != nil {
		return err
	}
	return r.cuda.MemHostUnregister(t, p)
}

// HostGetDevicePointer is cudaHostGetDevicePointer.
func (r *Runtime) HostGetDevicePointer(t *softcuda.Thread, out, host cmem.Ptr, flags uint32) error {
	if err := r.ensure(t); err != nil {
		return err
	}
	return r.cuda.MemHostGetDevicePointer(t, out, host, flags)
}

// HostGetFlags is cudaHostGetFlags.
func (r *Runtime) HostGetFlags(t *softcuda.Thread, out, host cmem.Ptr) error {
	if err := r.ensure(t); err != nil {
		return err
	}
	return r.cuda.MemHostGetFlags(t, out, host)
}

// MallocManaged is cudaMallocManaged.
func (r *Runtime) MallocManaged(t *softcuda.Thread, out cmem.Ptr, n uint64, flags uint32) error {
	if n == 0 || flags != uint32(gpu.ManagedGlobal) && flags != uint32(gpu.ManagedHost) {
		return gpu.ErrInvalidValue
	}
	return r.alloc(t, out, gpu.KindManaged, n, flags)
}

// MallocAsync is cudaMallocAsync.
func (r *Runtime) MallocAsync(t *softcuda.Thread, out cmem.Ptr, n uint64, id handle.ID) error {
	if err := r.ensure(t); err != nil {
		return err
	}
	return r.cuda.MemAllocAsync(t, out, n, id)
}

// FreeAsync is cudaFreeAsync.
func (r *Runtime) FreeAsync(t *softcuda.Thread, p cmem.Ptr, id handle.ID) error {
	if err := r.ensure(t); err != nil || p == 0 {
		return err
	}
	return r.cuda.MemFreeAsync(t, gpu.Addr(p), id)
}

// MemAdvise is cudaMemAdvise of CUDA 12.
func (r *Runtime) MemAdvise(t *softcuda.Thread, p cmem.Ptr, n uint64, advice, dev int32) error {
	if err := r.ensure(t); err != nil {
		return err
	}
	return r.cuda.MemAdvise(t, gpu.Addr(p), n, advice, dev)
}

// MemAdviseLocation is cudaMemAdvise of CUDA 13.
func (r *Runtime) MemAdviseLocation(t *softcuda.Thread, p cmem.Ptr, n uint64, advice, kind, id int32) error {
	if err := r.ensure(t); err != nil {
		return err
	}
	return r.cuda.MemAdviseLocation(t, gpu.Addr(p), n, advice, kind, id)
}

// MemPrefetchAsync is cudaMemPrefetchAsync of CUDA 12.
func (r *Runtime) MemPrefetchAsync(t *softcuda.Thread, p cmem.Ptr, n uint64, dev int32, id handle.ID) error {
	if err := r.ensure(t); err != nil {
		return err
	}
	return r.cuda.MemPrefetchAsync(t, gpu.Addr(p), n, dev, id)
}

// MemPrefetchLocation is cudaMemPrefetchAsync of CUDA 13.
func (r *Runtime) MemPrefetchLocation(t *softcuda.Thread, p cmem.Ptr, n uint64, kind, dev int32, flags uint32, id handle.ID) error {
	if err := r.ensure(t); err != nil {
		return err
	}
	return r.cuda.MemPrefetchLocation(t, gpu.Addr(p), n, kind, dev, flags, id)
}

// cudaMemoryType.
const (
	memoryUnregistered int32 = 0
	memoryHost         int32 = 1
	memoryDevice       int32 = 2
	memoryManaged      int32 = 3
)

// pointerAttributes is struct cudaPointerAttributes without what CUDA 13
// reserves after it.
type pointerAttributes struct {
	_      structs.HostLayout
	kind   int32
	device int32
	dev    gpu.Addr
	host   uint64
}

// PointerGetAttributes is cudaPointerGetAttributes.
func (r *Runtime) PointerGetAttributes(t *softcuda.Thread, out, p cmem.Ptr) error {
	if err := r.ensure(t); err != nil {
		return err
	}
	x, err := r.cuda.Pointer(t, gpu.Addr(p))
	if err != nil {
		return err
	}
	at := pointerAttributes{kind: memoryDevice, device: int32(x.Device), dev: x.Addr, host: uint64(x.Host)}
	switch x.Kind {
	case gpu.KindNone:
		at = pointerAttributes{kind: memoryUnregistered, device: -2, host: uint64(p)}
	case gpu.KindHost, gpu.KindRegistered:
		at.kind = memoryHost
	case gpu.KindManaged:
		at.kind = memoryManaged
	}
	cmem.Store(out, at)
	return nil
}
