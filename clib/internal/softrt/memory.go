package softrt

import (
	"structs"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/clib/internal/softcuda"
	"github.com/culvert-io/culvert/gpu"
)

// alloc allocates. A size of 0 is no error for the runtime.
func (r *Runtime) alloc(c softcuda.Call, out cmem.Ptr, k gpu.Kind, n uint64, flags uint32) error {
	if n == 0 {
		return cmem.Answer(out, gpu.Addr(0))
	}
	return r.cuda.Alloc(c, out, k, n, flags)
}

// Malloc is cudaMalloc.
func (r *Runtime) Malloc(c softcuda.Call, out cmem.Ptr, n uint64) error {
	return r.alloc(c, out, gpu.KindDevice, n, 0)
}

// MallocPitch is cudaMallocPitch.
func (r *Runtime) MallocPitch(c softcuda.Call, out, pitch cmem.Ptr, width, height uint64) error {
	const element = 4
	return r.cuda.MemAllocPitch(c, out, pitch, width, height, element)
}

// Free is cudaFree. Programs free NULL to create a context.
func (r *Runtime) Free(c softcuda.Call, a gpu.Addr) error {
	if a == 0 {
		return nil
	}
	return r.cuda.MemFree(c, a)
}

// MallocHost is cudaMallocHost.
func (r *Runtime) MallocHost(c softcuda.Call, out cmem.Ptr, n uint64) error {
	return r.alloc(c, out, gpu.KindHost, n, 0)
}

// HostAlloc is cudaHostAlloc.
func (r *Runtime) HostAlloc(c softcuda.Call, out cmem.Ptr, n uint64, flags uint32) error {
	return r.alloc(c, out, gpu.KindHost, n, flags)
}

// FreeHost is cudaFreeHost.
func (r *Runtime) FreeHost(c softcuda.Call, p cmem.Ptr) error {
	if p == 0 {
		return nil
	}
	return r.cuda.MemFreeHost(c, p)
}

// FreeAsync is cudaFreeAsync.
func (r *Runtime) FreeAsync(c softcuda.Call, a gpu.Addr) error {
	if a == 0 {
		return nil
	}
	return r.cuda.MemFreeAsync(c, a)
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
func (r *Runtime) PointerGetAttributes(c softcuda.Call, out, p cmem.Ptr) error {
	x, err := r.cuda.Pointer(c, gpu.Addr(p))
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
	return cmem.Answer(out, at)
}
