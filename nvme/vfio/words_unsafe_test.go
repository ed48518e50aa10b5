package vfio

import (
	"sync/atomic"
	"unsafe"
)

// loadWords reads a BAR as devices like it: in words.
func loadWords(dst, src []byte) {
	for i := 0; i < len(src); i += 4 {
		*(*uint32)(unsafe.Pointer(&dst[i])) = atomic.LoadUint32((*uint32)(unsafe.Pointer(&src[i])))
	}
}

// storeWords is the way back.
func storeWords(dst, src []byte) {
	for i := 0; i < len(src); i += 4 {
		atomic.StoreUint32((*uint32)(unsafe.Pointer(&dst[i])), *(*uint32)(unsafe.Pointer(&src[i])))
	}
}
