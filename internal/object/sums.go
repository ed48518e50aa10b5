package object

import (
	"cmp"
	"slices"
	"sync"

	"github.com/culvert-io/culvert/internal/crc32c"
)

// sums has the CRC-32C of the ranges of an object that were read, in any order.
// Neighbours are joined, so that it stays short. A range that overlaps one that is
// there is left out: its bytes were summed when they were read first, or the sum never
// becomes complete.
type sums struct {
	mu     sync.Mutex
	ranges []summedRange // by offset, not adjacent
}

type summedRange struct {
	off, n int64
	sum    uint32
}

// wants reports whether a range can be added.
func (s *sums) wants(off, n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.placeLocked(off, n)
	return ok
}

// placeLocked is where a range goes; false if it overlaps one that is there.
func (s *sums) placeLocked(off, n int64) (int, bool) {
	i, _ := slices.BinarySearchFunc(s.ranges, off, func(r summedRange, off int64) int { return cmp.Compare(r.off, off) })
	return i, (i == 0 || s.ranges[i-1].end() <= off) && (i == len(s.ranges) || off+n <= s.ranges[i].off)
}

func (s *sums) add(off, n int64, sum uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, ok := s.placeLocked(off, n)
	if !ok {
		return
	}
	s.ranges = slices.Insert(s.ranges, i, summedRange{off, n, sum})
	s.joinLocked(i)
	s.joinLocked(i - 1)
}

func (r summedRange) end() int64 { return r.off + r.n }

// joinLocked joins a range with the next one if they are adjacent.
func (s *sums) joinLocked(i int) {
	if i < 0 || i+1 >= len(s.ranges) || s.ranges[i].end() != s.ranges[i+1].off {
		return
	}
	next := s.ranges[i+1]
	s.ranges[i].sum = crc32c.Join(s.ranges[i].sum, next.sum, next.n)
	s.ranges[i].n += next.n
	s.ranges = slices.Delete(s.ranges, i+1, i+2)
}

// whole returns the sum of an object of which all bytes were added.
func (s *sums) whole(size int64) (uint32, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ranges) != 1 || s.ranges[0].off != 0 || s.ranges[0].n != size {
		return 0, false
	}
	return s.ranges[0].sum, true
}

// missing returns the ranges of an object that were not added.
func (s *sums) missing(size int64) (list []summedRange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := int64(0)
	for _, r := range s.ranges {
		if r.off > at {
			list = append(list, summedRange{off: at, n: r.off - at})
		}
		at = r.end()
	}
	if at < size {
		list = append(list, summedRange{off: at, n: size - at})
	}
	return list
}
