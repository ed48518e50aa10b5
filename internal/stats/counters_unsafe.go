package stats

import "unsafe"

// Counters tell code outside of Go where to count transfers of one direction and
// route: the addresses of one shard's counters, atomic words of 64 bits. Those of
// the next shard are Stride bytes further; there are [Shards].
type Counters struct {
	Ops, Bytes, Nanos uintptr
	Stride            uintptr
}

// Counters returns those of a file, valid until it is detached. A file without a
// slot has none: its sums are in Go's memory, or in two places.
func (f *File) Counters(write bool, route int) (Counters, bool) {
	if f.slot == others {
		return Counters{}, false
	}
	s, i := &f.block.shards[0], index(write, route)
	return Counters{
		Ops:    uintptr(unsafe.Pointer(&s[opsAt+i])),
		Bytes:  uintptr(unsafe.Pointer(&s[bytesAt+i])),
		Nanos:  uintptr(unsafe.Pointer(&s[nanosAt])),
		Stride: unsafe.Sizeof(*s),
	}, true
}
