package lease

import (
	"structs"
	"sync/atomic"
	"unsafe"
)

// The numbers of shim/lease.h.
const (
	slots    = 256
	ways     = 4
	shards   = 16
	userBits = 24
)

// A Slot is struct culvert_lease. Whoever is inside and has found the handle
// that they came with may rely on everything else, so that only Handle says
// whether there is a lease, and the rest changes when nobody is inside.
type Slot struct {
	_                         structs.HostLayout
	Handle                    atomic.Uint64 // 0: nobody may enter
	Base                      atomic.Uint64
	Until                     atomic.Int64 // by CLOCK_MONOTONIC, in nanoseconds
	Memory, Length, Below     uint64
	Ops, Bytes, Nanos, Stride uint64
	FD                        int32
	_                         [4]byte
	_                         [5]uint64
	shards                    [shards]shard
}

// A shard has a pair of cache lines for itself. Its low bits count who is inside,
// the others the reads that went well.
type shard struct {
	_  structs.HostLayout
	in atomic.Uint64
	_  [15]uint64
}

var (
	_ [128]byte                = [unsafe.Sizeof(shard{})]byte{}
	_ [128 * (1 + shards)]byte = [unsafe.Sizeof(Slot{})]byte{}
	_ [80]byte                 = [unsafe.Offsetof(Slot{}.FD)]byte{}
)

// Slots are all that there are, in memory that C has, too.
type Slots [slots]Slot

// address is where C finds memory.
func address(mem []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))) }
