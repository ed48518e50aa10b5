// Package addrspace allocates ranges of addresses and finds what is at an address.
package addrspace

import (
	"iter"
	"slices"
)

// A Space is a set of disjoint ranges of addresses, each with a value. Its zero value
// has no addresses to allocate, but takes ranges by Insert.
type Space[A ~uint64, T any] struct {
	base, end A
	next      A             // where Take looks first
	ranges    []entry[A, T] // sorted
}

type entry[A ~uint64, T any] struct {
	base, end A
	value     T
}

// New returns a space that allocates addresses of [base, end).
func New[A ~uint64, T any](base, end A) Space[A, T] {
	return Space[A, T]{base: base, end: end, next: base}
}

// Take allocates size addresses from a multiple of align, a power of two, on. It
// allocates in turn: an address that was freed is not valid again soon, so that a use
// after free is found.
func (s *Space[A, T]) Take(size, align uint64, value T) (base A, ok bool) {
	if base, ok = s.take(s.next, size, align, value); !ok {
		base, ok = s.take(s.base, size, align, value)
	}
	if ok {
		s.next = base + A(size)
	}
	return base, ok
}

// TakeLowest allocates the lowest range that is free.
func (s *Space[A, T]) TakeLowest(size, align uint64, value T) (base A, ok bool) {
	return s.take(s.base, size, align, value)
}

// take allocates the first range that is free at or after from.
func (s *Space[A, T]) take(from A, size, align uint64, value T) (base A, ok bool) {
	if size == 0 {
		return 0, false
	}
	base = roundUp(from, align)
	for i := s.after(base); base <= s.end && size <= uint64(s.end-base); i++ {
		if i == len(s.ranges) || base+A(size) <= s.ranges[i].base {
			s.ranges = slices.Insert(s.ranges, i, entry[A, T]{base, base + A(size), value})
			return base, true
		}
		base = roundUp(s.ranges[i].end, align)
	}
	return 0, false
}

func roundUp[A ~uint64](a A, to uint64) A { return (a + A(to) - 1) &^ (A(to) - 1) }

// after returns the index of the first range that ends after a.
func (s *Space[A, T]) after(a A) int {
	i, _ := slices.BinarySearchFunc(s.ranges, a, func(e entry[A, T], a A) int {
		if e.end <= a {
			return -1
		}
		return 1
	})
	return i
}

// Insert adds a range that must be free.
func (s *Space[A, T]) Insert(base A, size uint64, value T) {
	s.ranges = slices.Insert(s.ranges, s.after(base), entry[A, T]{base, base + A(size), value})
}

// Remove frees the range that begins at base, if there is one.
func (s *Space[A, T]) Remove(base A) {
	if i := s.after(base); i < len(s.ranges) && s.ranges[i].base == base {
		s.ranges = slices.Delete(s.ranges, i, i+1)
	}
}

// Find returns the value at a, or the zero value.
func (s *Space[A, T]) Find(a A) T { return s.Overlap(a, 1) }

// Range returns the range that a is in; size is 0 if there is none.
func (s *Space[A, T]) Range(a A) (base A, size uint64) {
	if i := s.after(a); i < len(s.ranges) && s.ranges[i].base <= a {
		return s.ranges[i].base, uint64(s.ranges[i].end - s.ranges[i].base)
	}
	return 0, 0
}

// Overlap returns the first value in [a, a+size), or the zero value.
func (s *Space[A, T]) Overlap(a A, size uint64) (value T) {
	if i := s.after(a); i < len(s.ranges) && s.ranges[i].base < a+A(size) {
		return s.ranges[i].value
	}
	return value
}

// Len returns the number of ranges.
func (s *Space[A, T]) Len() int { return len(s.ranges) }

// All yields the values in the order of their addresses.
func (s *Space[A, T]) All() iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, e := range s.ranges {
			if !yield(e.value) {
				return
			}
		}
	}
}
