package lease

import (
	"structs"
	"sync/atomic"
	"unsafe"
)

// The numbers of shim/lease.h.
const (
	setBits  = 9
	ways     = 8
	slots    = ways << setBits
	shards   = 16
	userBits = 24
)

// A Slot is struct culvert_lease. A user that has counted itself in and found its
// handle may use all other fields: they change only while the slot has no users.
type Slot struct {
	_                         structs.HostLayout
	Handle                    atomic.Uint64 // 0: no lease
	Base                      atomic.Uint64
	Until                     atomic.Int64 // by CLOCK_MONOTONIC, in nanoseconds
	Memory, Length, Below     uint64
	Ops, Bytes, Nanos, Stride uint64
	FD                        int32
	_                         [4]byte
	_                         [5]uint64
	shards                    [shards]shard
}

// A shard has a pair of cache lines of its own. Its low bits count users, the
// others completed reads.
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

// Slots are all slots, in memory shared with C.
type Slots [slots]Slot

// address is the address of mem for C.
func address(mem []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))) }
