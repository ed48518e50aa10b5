package rdma

import (
	"sync/atomic"
	"unsafe"
)

// wordAt is a word of pinned memory that a GPU shares.
func wordAt(b []byte, off int) *atomic.Uint32 { return (*atomic.Uint32)(unsafe.Pointer(&b[off])) }
