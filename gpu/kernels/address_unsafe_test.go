//go:build linux && (amd64 || arm64) && !nodl

package kernels_test

import "unsafe"

// held keeps what C was given, by type, until the next of its type.
var held [3]any

// addressOf is the address of a slice's first element; the slice escapes.
func addressOf[T byte | uint32 | uint64](s []T) uintptr {
	held[unsafe.Sizeof(*new(T))/4] = s
	return uintptr(unsafe.Pointer(unsafe.SliceData(s)))
}
