package gpu

import (
	"slices"
	"sort"

	"github.com/culvert-io/culvert/gpu"
)

// A region is a range of addresses that the driver knows: an allocation, an
// import or a registration.
type region struct {
	kind  gpu.Kind
	base  gpu.Addr
	size  uint64 // as it was asked for
	span  uint64 // device addresses taken for it; 0 when they belong to a slab
	flags gpu.Flags
	dev   *Device // the owner
	blk   *block
	off   uint64 // of base in the block
	sync  bool   // SYNC_MEMOPS
	joins bool   // mapped by hand: one range with its neighbours that are, too
}

func (r *region) end() gpu.Addr { return r.base + gpu.Addr(r.size) }

// covers reports whether [a, a+n) lies inside.
func (r *region) covers(a gpu.Addr, n uint64) bool {
	off := uint64(a - r.base)
	return a >= r.base && off <= r.size && n <= r.size-off
}

// A space is the one address space of a driver, sorted by address.
type space struct{ regions []*region }

// index is that of the first region that begins after a.
func (s *space) index(a gpu.Addr) int {
	return sort.Search(len(s.regions), func(i int) bool { return s.regions[i].base > a })
}

// before is the last region that begins at or before a, or nil.
func (s *space) before(a gpu.Addr) *region {
	if i := s.index(a); i > 0 {
		return s.regions[i-1]
	}
	return nil
}

// find is the region that a lies in, or nil.
func (s *space) find(a gpu.Addr) *region {
	if r := s.before(a); r != nil && a < r.end() {
		return r
	}
	return nil
}

// overlapping is a region that shares bytes with [a, a+n), or nil.
func (s *space) overlapping(a gpu.Addr, n uint64) *region {
	if r := s.before(a + gpu.Addr(n) - 1); r != nil && r.end() > a {
		return r
	}
	return nil
}

func (s *space) insert(r *region) {
	s.regions = slices.Insert(s.regions, s.index(r.base), r)
}

func (s *space) remove(r *region) {
	i := s.index(r.base) - 1
	s.regions = slices.Delete(s.regions, i, i+1)
}
