package pcie

import "unsafe"

// inPage is where in its page the memory begins.
func inPage(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(&b[0]))) % pageSize }
