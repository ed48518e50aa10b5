package dl

import "unsafe"

// escape.to is never written, but the compiler does not know that, so it puts
// objects that might be stored there on the heap, where they do not move.
var escape struct {
	ever bool
	to   unsafe.Pointer
}

// Ref is the address of *p as an argument. It forces *p onto the heap: stacks
// move when they grow. The caller must keep *p alive until the call returns, by
// using it afterwards or by runtime.KeepAlive.
func Ref[T any](p *T) uintptr {
	if escape.ever {
		escape.to = unsafe.Pointer(p)
	}
	return uintptr(unsafe.Pointer(p))
}
