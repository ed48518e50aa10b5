package dl

import "unsafe"

// escape.to is never written, but the compiler does not know: what might be
// stored in it lives on the heap, where it does not move.
var escape struct {
	ever bool
	to   unsafe.Pointer
}

// Ref is the address of *p as an argument. It forces *p onto the heap: a stack
// moves when it grows, and C would write to where it was. The caller keeps *p
// alive past the call, by reading it or by runtime.KeepAlive.
func Ref[T any](p *T) uintptr {
	if escape.ever {
		escape.to = unsafe.Pointer(p)
	}
	return uintptr(unsafe.Pointer(p))
}
