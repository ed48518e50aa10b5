package gdrapi

import (
	"unsafe"

	"github.com/culvert-io/culvert/clib/internal/cmem"
)

// address is that of mapped memory, which never was Go's.
func address(b []byte) cmem.Ptr { return cmem.Ptr(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }
