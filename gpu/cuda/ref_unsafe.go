package cuda

import (
	"reflect"
	"unsafe"

	"github.com/culvert-io/culvert/internal/dl"
)

// ref is the address of *p as an argument; see dl.Ref.
func ref[T any](p *T) uintptr { return dl.Ref(p) }

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
