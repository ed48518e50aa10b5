// Package cmem reads and writes memory of C programs, which their arguments point
// to. It is the only package of the C API layer that uses raw pointers.
//
// A wild pointer faults. Package dispatch turns the fault into an error code, so
// that it does not crash the program.
package cmem

import (
	"sync/atomic"
	"unsafe"
)

// A Ptr is a C pointer, or a C function pointer, which Go only passes on.
type Ptr uintptr

func (p Ptr) pointer() unsafe.Pointer {
	// Not unsafe.Pointer(uintptr(p)): the memory was never Go's, and vet would
	// warn that it might be.
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

var probed atomic.Uint64 // keeps the compiler from removing the load

// Touch faults if the word at p cannot be written, before an object is created
// whose handle could not be returned. It does not change the word.
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

// Slice is the array of n elements at p.
func Slice[T any](p Ptr, n int) []T { return unsafe.Slice((*T)(p.pointer()), n) }

// At is element i of the array of T at p.
func At[T any](p Ptr, i int) Ptr {
	var t T
	return p + Ptr(uintptr(i)*unsafe.Sizeof(t))
}

// String copies the NUL-terminated string at p. ok is false if it is longer than
// limit.
func String(p Ptr, limit int) (s string, ok bool) {
	for n := range limit + 1 {
		if Load[byte](p+Ptr(n)) == 0 {
			return string(Slice[byte](p, n)), true
		}
	}
	return "", false
}

// PutString stores s and a NUL in the n bytes at p, truncated if necessary.
func PutString(p Ptr, n int, s string) {
	if n > 0 {
		room := Slice[byte](p, n)
		room[copy(room[:n-1], s)] = 0
	}
}

// PtrTo is the address of Go memory, for tests that act as C programs. It moves the
// memory to the heap, where it stays in place, but does not keep it alive.
func PtrTo[T any](v *T) Ptr {
	var escape any = v
	heap.Store(&escape)
	return Ptr(uintptr(unsafe.Pointer(v)))
}

var heap atomic.Pointer[any]
