//go:build linux && (amd64 || arm64) && !nodl

package cuda_test

import "unsafe"

// addressOf is the address of b's first byte; b escapes.
func addressOf(b []byte) uintptr {
	kept = b
	return uintptr(unsafe.Pointer(unsafe.SliceData(b)))
}

var kept []byte

// bytePointer is a pointer that C returned.
func bytePointer(p uintptr) *byte { return *(**byte)(unsafe.Pointer(&p)) }
