package cuda

import (
	"reflect"
	"unsafe"

	"github.com/culvert-io/culvert/internal/dl"
)

// escape.to is never written, but the compiler does not know: what might be
// stored in it lives on the heap, where it does not move.
var escape struct {
	ever bool
	to   unsafe.Pointer
}

// ref is the address of *p as an argument. It forces *p onto the heap; the
// caller keeps it alive past the call, by reading it or by runtime.KeepAlive.
func ref[T any](p *T) uintptr {
	if escape.ever {
		escape.to = unsafe.Pointer(p)
	}
	return uintptr(unsafe.Pointer(p))
}

// refBytes is the address of the first byte of b, by the rules of ref.
func refBytes(b []byte) uintptr { return ref(unsafe.SliceData(b)) }

// symbolAt is the symbol in a field, which reflection alone will not set
// because it is not exported.
func symbolAt(v reflect.Value) *symbol { return (*symbol)(v.Addr().UnsafePointer()) }

// text asks the driver for a text about a code: cuGetErrorName and
// cuGetErrorString give a pointer to static memory.
func text(s *symbol, code uintptr) string {
	p := new(*byte)
	if s.call(code, ref(p)) != 0 {
		return ""
	}
	return dl.String(*p)
}
