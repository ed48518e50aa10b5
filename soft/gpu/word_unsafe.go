package gpu

import (
	"sync/atomic"
	"unsafe"
)

// loadWord reads a word of 4 or 8 bytes that may be written concurrently. b must be
// aligned to its length.
func loadWord(b []byte) uint64 {
	p := unsafe.Pointer(unsafe.SliceData(b))
	if len(b) == 4 {
		return uint64(atomic.LoadUint32((*uint32)(p)))
	}
	return atomic.LoadUint64((*uint64)(p))
}

// storeWord writes such a word.
func storeWord(b []byte, v uint64) {
	p := unsafe.Pointer(unsafe.SliceData(b))
	if len(b) == 4 {
		atomic.StoreUint32((*uint32)(p), uint32(v))
		return
	}
	atomic.StoreUint64((*uint64)(p), v)
}
