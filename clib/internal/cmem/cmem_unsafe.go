// Package cmem reads and writes memory that belongs to C: the arguments that a
// program's pointers lead to. It is the only package of the C API layer that
// handles raw pointers.
//
// A pointer that leads nowhere faults. Package dispatch turns the fault into an
// error code, so that a wild pointer does not take the program
// down from inside the library.
package cmem

import (
	"sync/atomic"
	"unsafe"
)

// A Ptr is a C pointer, or a C function pointer, which is only carried around.
type Ptr uintptr

func (p Ptr) pointer() unsafe.Pointer {
	// Not unsafe.Pointer(uintptr(p)): the memory was never Go's, and the detour
	// keeps vet from suspecting that it was.
	return *(*unsafe.Pointer)(unsafe.Pointer(&p))
}

// Load reads the T at p.
func Load[T any](p Ptr) T { return *(*T)(p.pointer()) }

// Store writes the T at p.
func Store[T any](p Ptr, v T) { *(*T)(p.pointer()) = v }

// Put stores v unless there is an error, which it returns.
func Put[T any](p Ptr, v T, err error) error {
	if err == nil {
		Store(p, v)
	}
	return err
}

// Probe faults if the word at p cannot be read.
func Probe(p Ptr) { probed.Store(Load[uint64](p)) }

var probed atomic.Uint64 // so that the compiler does not leave the reading out

// Touch faults if the word at p cannot be written, before something is made whose
// name could then not be told. The word stays as it is.
func Touch(p Ptr) { Store(p, Load[uint64](p)) }

// Fault reports whether a recovered panic is a fault at an address that the
// program gave. A fault in the first page is a nil pointer of Go code.
func Fault(p any) (addr uintptr, ok bool) {
	const page = 4096
	f, ok := p.(interface{ Addr() uintptr })
	if !ok || f.Addr() < page {
		return 0, false
	}
	return f.Addr(), true
}

// Slice is the array of n elements at p, in place.
func Slice[T any](p Ptr, n int) []T { return unsafe.Slice((*T)(p.pointer()), n) }

// At is element i of the array of T at p.
func At[T any](p Ptr, i int) Ptr {
	var t T
	return p + Ptr(uintptr(i)*unsafe.Sizeof(t))
}

// String copies the NUL-terminated string at p. ok is false when it is longer
// than limit.
func String(p Ptr, limit int) (s string, ok bool) {
	for n := range limit + 1 {
		if Load[byte](p+Ptr(n)) == 0 {
			return string(Slice[byte](p, n)), true
		}
	}
	return "", false
}

// PutString stores s and a NUL in the n bytes at p, cut off where there is no
// room, and reports whether all of it fitted.
func PutString(p Ptr, n int, s string) bool {
	if n <= 0 {
		return false
	}
	room := Slice[byte](p, n)
	room[copy(room[:n-1], s)] = 0
	return len(s) < n
}

// PtrTo is the address of Go memory, for tests that play C's part. It moves
// the memory to the heap, where it stays in place, but does not keep it alive.
func PtrTo[T any](v *T) Ptr {
	var escape any = v
	heap.Store(&escape)
	return Ptr(uintptr(unsafe.Pointer(v)))
}

var heap atomic.Pointer[any]
