package cmem

import (
	"sync/atomic"
	"unsafe"
)

const (
	page         = 4096
	trustedPages = 4
)

// A Trust remembers the pages of the last words that the kernel has exchanged. Words on
// the same pages are exchanged by the CPU, in a tenth of the time. If the program has
// unmapped them since, that is a fault, which is a panic as well, unless the program
// handles SIGSEGV itself. It is safe for concurrent use.
type Trust struct {
	pages   [trustedPages]atomic.Uintptr
	written atomic.Uintptr // the page of the last word
}

// ExchangeWords is the function of this name.
func (t *Trust) ExchangeWords(from ...Ptr) (words [maxWords]uint64) {
	n := len(from)
	if n == 0 || n > trustedPages || !t.covers(from) {
		words = ExchangeWords(from...)
		t.remember(from)
		return words
	}
	for i, p := range from {
		direct(load, p, unsafe.Pointer(&words[i]), wordSize)
	}
	direct(store, from[n-1], unsafe.Pointer(&words[n-1]), wordSize)
	return words
}

// covers reports whether the words are on known pages, and the last on one that can be
// written.
func (t *Trust) covers(from []Ptr) bool {
	for _, p := range from {
		if p%page > page-wordSize || !t.knows(uintptr(p/page)) {
			return false
		}
	}
	return t.written.Load() == uintptr(from[len(from)-1]/page)
}

func (t *Trust) knows(number uintptr) bool {
	for i := range t.pages {
		if t.pages[i].Load() == number {
			return true
		}
	}
	return false
}

// remember keeps the pages of words that have been exchanged.
func (t *Trust) remember(from []Ptr) {
	if len(from) == 0 || len(from) > trustedPages {
		return
	}
	for i, p := range from {
		t.pages[i].Store(uintptr(p / page))
	}
	t.written.Store(uintptr(from[len(from)-1] / page))
}
