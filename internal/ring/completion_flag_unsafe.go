package ring

import (
	"sync/atomic"
	"unsafe"

	"github.com/culvert-io/culvert/gpu"
)

// hostWord is a word of pinned memory that the GPU writes.
func hostWord(a gpu.Addr) *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Pointer(unsafe.SliceData(gpu.HostBytes(a, 4))))
}
