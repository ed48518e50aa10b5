package vfio

import "slices"

// An iovas hands out bus addresses, in turn, so that an address which was given
// back does not mean other memory soon.
type iovas struct {
	ranges []iovaRange // that may be used
	taken  []iovaRange // sorted
	next   uint64
}

// firstIOVA keeps clear of low addresses, which a null pointer or a 32-bit
// remainder would hit.
const firstIOVA = 1 << 32

// defaultRange is for kernels that do not tell: what the smallest IOMMUs have.
var defaultRange = []iovaRange{{Start: firstIOVA, End: 1<<39 - 1}}

func newIOVAs(ranges []iovaRange) *iovas {
	s := &iovas{next: firstIOVA}
	for _, r := range ranges {
		if r.End >= firstIOVA {
			s.ranges = append(s.ranges, iovaRange{Start: max(r.Start, firstIOVA), End: r.End})
		}
	}
	if len(s.ranges) == 0 {
		s.ranges = ranges
	}
	if len(s.ranges) == 0 {
		s.ranges = defaultRange
	}
	return s
}

// take finds n free addresses that begin at a page.
func (s *iovas) take(n uint64) (uint64, bool) {
	for _, from := range []uint64{s.next, 0} {
		for _, r := range s.ranges {
			if a, i, ok := s.fit(max(from, r.Start), r.End, n); ok {
				s.taken = slices.Insert(s.taken, i, iovaRange{Start: a, End: a + n - 1})
				s.next = a + n
				return a, true
			}
		}
	}
	return 0, false
}

// fit looks for n addresses between start and last, and where they belong among
// those that are taken.
func (s *iovas) fit(start, last, n uint64) (a uint64, index int, ok bool) {
	a = (start + pageSize - 1) &^ (pageSize - 1)
	if a < start {
		return 0, 0, false
	}
	for i, t := range s.taken {
		if t.End < a {
			continue
		}
		if a <= last && n-1 <= last-a && a+n-1 < t.Start {
			return a, i, true
		}
		if a = (t.End + pageSize) &^ (pageSize - 1); a < t.End {
			return 0, 0, false
		}
	}
	return a, len(s.taken), a <= last && n-1 <= last-a
}

func (s *iovas) give(a uint64) {
	s.taken = slices.DeleteFunc(s.taken, func(t iovaRange) bool { return t.Start == a })
}
