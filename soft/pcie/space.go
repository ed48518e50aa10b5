package pcie

import "slices"

// A span is a range of addresses.
type span struct{ base, size uint64 }

func (s span) end() uint64 { return s.base + s.size }

// A space allocates ranges of addresses in turn: an address that was freed is not
// valid again soon, so that a use after free is found.
type space struct {
	limit span
	taken []span // sorted
	next  uint64
}

func newSpace(base, end uint64) space {
	return space{limit: span{base, end - base}, next: base}
}

// take allocates size addresses from a multiple of align on.
func (s *space) take(size, align uint64) (base uint64, ok bool) {
	if size == 0 || size > s.limit.size {
		return 0, false
	}
	for _, from := range []uint64{s.next, s.limit.base} {
		if base, i, ok := s.fit(from, size, align); ok {
			s.taken = slices.Insert(s.taken, i, span{base, size})
			s.next = base + size
			return base, true
		}
	}
	return 0, false
}

// fit finds the first gap at or after from, and its index in taken.
func (s *space) fit(from, size, align uint64) (base uint64, at int, ok bool) {
	base = roundUp(from, align)
	i, _ := slices.BinarySearchFunc(s.taken, base, func(t span, a uint64) int {
		if t.end() <= a {
			return -1
		}
		return 1
	})
	for ; base+size <= s.limit.end(); i++ {
		if i == len(s.taken) || base+size <= s.taken[i].base {
			return base, i, true
		}
		base = roundUp(s.taken[i].end(), align)
	}
	return 0, 0, false
}

func (s *space) give(base uint64) {
	i, ok := slices.BinarySearchFunc(s.taken, base, func(t span, a uint64) int {
		switch {
		case t.base < a:
			return -1
		case t.base > a:
			return 1
		}
		return 0
	})
	if ok {
		s.taken = slices.Delete(s.taken, i, i+1)
	}
}

// roundUp rounds to a multiple of a power of two.
func roundUp(n, to uint64) uint64 { return (n + to - 1) &^ (to - 1) }
