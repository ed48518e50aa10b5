package cufile

import (
	"sync/atomic"
	"unsafe"

	"github.com/culvert-io/culvert/gpu"
)

// storeWord writes a word of pinned memory that a GPU waits for.
func storeWord(a gpu.Addr, v uint64) {
	atomic.StoreUint64((*uint64)(unsafe.Pointer(unsafe.SliceData(gpu.HostBytes(a, wordSize)))), v)
}
