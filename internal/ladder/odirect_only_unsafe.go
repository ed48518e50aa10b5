package ladder

import "unsafe"

// alignedBytes allocates n bytes aligned to align, a power of two.
func alignedBytes(n, align int) []byte {
	b := make([]byte, n+align)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (align - 1)
	return b[skip : skip+n : skip+n]
}
