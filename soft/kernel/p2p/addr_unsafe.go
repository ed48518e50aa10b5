package p2p

import "unsafe"

// addrOf is where memory is.
func addrOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(&b[0]))) }
