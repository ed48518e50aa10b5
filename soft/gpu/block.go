package gpu

import (
	"sort"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/soft/internal/addrspace"
)

// A block is the unit in which memory is freed: frames of a card, or a range of host
// memory. live counts allocations, holds counts other users: accesses, exports and work
// that is queued or running. It is freed when both are zero. Driver.mu guards all fields
// that change.
type block struct {
	card   *GPU // nil for host memory
	gen    uint64
	size   uint64
	frames []uint64 // device memory
	runs   []run

	// foreign memory is the user's, registered or plain, or a device's. It may be
	// unmapped or unplugged at any time, so that accesses are guarded.
	foreign, plain bool
	end            func() // frees host memory

	private bool // cuMemCreate asked for no handle type

	live  int
	holds int
	hooks []*hook
	small *slab // the small allocations that share the block; else nil

	object *object // if other processes know the block; else nil
}

// A run is a part of a block that is contiguous in this process's memory.
type run struct {
	at    uint64 // in the block
	bytes []byte
}

// A hook is a function to call before the block is freed.
type hook struct{ fn func() }

// hostBlock returns a block of host memory.
func hostBlock(b []byte, foreign bool, end func()) *block {
	return &block{size: uint64(len(b)), runs: []run{{0, b}}, foreign: foreign, end: end}
}

// A cursor iterates over the bytes of a block.
type cursor struct {
	now  []byte
	rest []run
}

// from returns a cursor at off, which must be inside the block.
func (b *block) from(off uint64) cursor {
	i := sort.Search(len(b.runs), func(i int) bool { return b.runs[i].at > off }) - 1
	return cursor{b.runs[i].bytes[off-b.runs[i].at:], b.runs[i+1:]}
}

func (c *cursor) skip(n int) {
	c.now = c.now[n:]
	if len(c.now) == 0 && len(c.rest) > 0 {
		c.now, c.rest = c.rest[0].bytes, c.rest[1:]
	}
}

// segs returns n bytes from off as slices.
func (b *block) segs(off, n uint64) [][]byte {
	var out [][]byte
	for c := b.from(off); n > 0; {
		k := min(uint64(len(c.now)), n)
		out = append(out, c.now[:k:k])
		c.skip(int(k))
		n -= k
	}
	return out
}

// A slab is the small allocations that share a block.
type slab struct {
	base gpu.Addr
	used addrspace.Space[gpu.Addr, *region]
	// freed are addresses that were freed while the block was held. They are reused when
	// it is not.
	freed []gpu.Addr
}

// smallAlign is the alignment of small allocations, as on hardware.
const smallAlign = 512

// reuse makes freed addresses available.
func (s *slab) reuse() {
	for _, a := range s.freed {
		s.used.Remove(a)
	}
	s.freed = s.freed[:0]
}

// roundUp rounds to a multiple of a power of two.
func roundUp(n, to uint64) uint64 { return (n + to - 1) &^ (to - 1) }
