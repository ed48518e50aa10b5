package vfio

import (
	"slices"

	abi "github.com/culvert-io/culvert/internal/abi/vfio"
)

// An iovas allocates I/O virtual addresses, in ascending order, so that a freed
// address is not soon reused for other memory.
type iovas struct {
	ranges []abi.IOVARange // usable
	taken  []abi.IOVARange // sorted
	next   uint64
}

// firstIOVA excludes low addresses, which a null pointer or a truncated 32-bit
// address would hit.
const firstIOVA = 1 << 32

// defaultRange is for kernels that do not report ranges: 39 bits, as in the
// smallest IOMMUs.
var defaultRange = []abi.IOVARange{{Start: firstIOVA, End: 1<<39 - 1}}

func newIOVAs(ranges []abi.IOVARange) *iovas {
	s := &iovas{next: firstIOVA}
	for _, r := range ranges {
		if r.End >= firstIOVA {
			s.ranges = append(s.ranges, abi.IOVARange{Start: max(r.Start, firstIOVA), End: r.End})
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

// take allocates n addresses, aligned to a page.
func (s *iovas) take(n uint64) (uint64, bool) {
	for _, from := range []uint64{s.next, 0} {
		for _, r := range s.ranges {
			if a, i, ok := s.fit(max(from, r.Start), r.End, n); ok {
				s.taken = slices.Insert(s.taken, i, abi.IOVARange{Start: a, End: a + n - 1})
				s.next = a + n
				return a, true
			}
		}
	}
	return 0, false
}

// fit finds n free addresses between start and last, and their index in taken.
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
	s.taken = slices.DeleteFunc(s.taken, func(t abi.IOVARange) bool { return t.Start == a })
}
