// Package cmem reads and writes memory of C programs, which their arguments point
// to. It is the only package of the C API layer that uses raw pointers.
//
// A wild pointer is a panic, which package dispatch turns into an error code. The
// kernel does each access (see transfer): if the CPU did it, a program that handles
// SIGSEGV itself would get the fault.
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

// Pointer is p for code that checks memory of the program itself, such as an emulated
// kernel module.
func (p Ptr) Pointer() unsafe.Pointer { return p.pointer() }

// Load reads the T at p.
func Load[T any](p Ptr) (v T) {
	access(load, p, unsafe.Pointer(&v), unsafe.Sizeof(v))
	return v
}

const (
	wordSize = 8
	maxWords = 8
)

// LoadWords reads the words at up to 8 places in one access, which takes the time of one.
func LoadWords(from ...Ptr) (words [maxWords]uint64) {
	if len(from) > 0 && (refused.Load() || !loadWords(words[:], from)) {
		for i, p := range from { // one of them panics at its address
			words[i] = Load[uint64](p)
		}
	}
	return words
}

// ExchangeWords is LoadWords, and writes the last word back in the same access: it panics
// also if that place cannot be written.
func ExchangeWords(from ...Ptr) (words [maxWords]uint64) {
	if !refused.Load() && exchangeWords(&words, from) {
		return words
	}
	words = LoadWords(from...)
	if n := len(from); n > 0 {
		Store(from[n-1], words[n-1])
	}
	return words
}

// Store writes the T at p.
func Store[T any](p Ptr, v T) { access(store, p, unsafe.Pointer(&v), unsafe.Sizeof(v)) }

// StoreUnlessNull is Store, except that it does nothing if p is NULL.
func StoreUnlessNull[T any](p Ptr, v T) {
	if p != 0 {
		Store(p, v)
	}
}

// LoadAll reads the array of n elements at p.
func LoadAll[T any](p Ptr, n int) []T {
	all := make([]T, n)
	if n > 0 {
		access(load, p, unsafe.Pointer(&all[0]), uintptr(n)*unsafe.Sizeof(all[0]))
	}
	return all
}

// StoreAll writes an array at p.
func StoreAll[T any](p Ptr, all []T) {
	if len(all) > 0 {
		access(store, p, unsafe.Pointer(&all[0]), uintptr(len(all))*unsafe.Sizeof(all[0]))
	}
}

// Answer stores the result of a call that has succeeded.
func Answer[T any](p Ptr, v T) error {
	Store(p, v)
	return nil
}

// Put stores v unless there is an error, which it returns.
func Put[T any](p Ptr, v T, err error) error {
	if err == nil {
		Store(p, v)
	}
	return err
}

// Probe panics if the word at p cannot be read.
func Probe(p Ptr) { Load[uint64](p) }

// Touch panics if the word at p cannot be written, before an object is created
// whose handle could not be returned. It does not change the word.
func Touch(p Ptr) { Store(p, Load[uint64](p)) }

// A wild is the panic of an access to memory that is not there.
type wild struct{ p Ptr }

func (w wild) Addr() uintptr { return uintptr(w.p) }

// Fault reports whether a recovered panic is a fault at an address that the
// program gave. A fault of the CPU in the first page is a nil pointer of Go code.
func Fault(p any) (addr uintptr, ok bool) {
	if w, ok := p.(wild); ok {
		return w.Addr(), true
	}
	f, ok := p.(interface{ Addr() uintptr })
	if !ok || f.Addr() < page {
		return 0, false
	}
	return f.Addr(), true
}

// Bulk is the memory of n bytes at p, for data that others move and that is too large
// to be copied. It is not checked.
func Bulk(p Ptr, n int) []byte { return unsafe.Slice((*byte)(p.pointer()), n) }

// At is element i of the array of T at p.
func At[T any](p Ptr, i int) Ptr {
	var t T
	return p + Ptr(uintptr(i)*unsafe.Sizeof(t))
}

// String copies the NUL-terminated string at p. ok is false if it is longer than
// limit.
func String(p Ptr, limit int) (s string, ok bool) {
	const part = 256 // ends at a multiple: the string may be the last of its page
	var text []byte
	for len(text) <= limit {
		at := p + Ptr(len(text))
		for _, b := range LoadAll[byte](at, int(min(part-at%part, Ptr(limit+1-len(text))))) {
			if b == 0 {
				return string(text), true
			}
			text = append(text, b)
		}
	}
	return "", false
}

// PutString stores s and a NUL in the n bytes at p, truncated if necessary.
func PutString(p Ptr, n int, s string) {
	if n > 0 {
		StoreAll(p, append([]byte(s[:min(len(s), n-1)]), 0))
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
