package stats

import "unsafe"

// Counters are where transfers of one direction and route are counted, for code
// outside of Go: the addresses of a shard's counters, atomic words of 64 bits. The
// next shard's lie Stride bytes further on, and there are [Shards].
type Counters struct {
	Ops, Bytes, Nanos uintptr
	Stride            uintptr
}

// Counters are a file's, valid until it is detached. A file without a slot has
// none: its sums are in memory that is Go's alone, or in two places.
func (f *File) Counters(write bool, route int) (Counters, bool) {
	if f.slot == others {
		return Counters{}, false
	}
	s, dir, r := &f.block.shards[0], direction(write), uint(route)%Routes
	return Counters{
		Ops:    uintptr(unsafe.Pointer(&s.ops[dir][r])),
		Bytes:  uintptr(unsafe.Pointer(&s.bytes[dir][r])),
		Nanos:  uintptr(unsafe.Pointer(&s.nanos)),
		Stride: unsafe.Sizeof(*s),
	}, true
}
