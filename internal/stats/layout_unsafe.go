package stats

import (
	"structs"
	"sync/atomic"
	"unsafe"
)

// The layout of a segment. Whoever changes it raises layoutVersion.
const (
	layoutVersion = 1

	// Shards is the number of places in which a block counts. Users that run at
	// the same time should name different ones.
	Shards = 16
	// Routes is the room for routes, which are known by number.
	Routes = 16

	slots    = 64
	nameSize = 256
)

var magic = [8]byte{'c', 'u', 'l', 'v', 's', 't', 'a', 't'}

// A header begins the segment.
type header struct {
	_          structs.HostLayout
	Magic      [8]byte
	Version    uint32
	Slots      uint32
	PID        uint32
	UID        uint32
	Started    int64         // in nanoseconds since 1970
	Ended      atomic.Int64  // when the process was found dead; 0 before
	Changes    atomic.Uint64 // odd while a slot changes hands
	RouteNames [Routes][16]byte
	Command    [nameSize]byte
	_          [headerSize - 48 - Routes*16 - nameSize]byte
}

// A slot is a file's.
type slot struct {
	_     structs.HostLayout
	State atomic.Uint32
	_     [4]byte
	Name  [nameSize]byte
	_     [1024 - 8 - nameSize]byte
	Block Block
	_     [1024]byte
}

// A Block sums transfers. Its zero value is ready.
type Block struct {
	_      structs.HostLayout
	shards [Shards]shard
}

// A shard fills whole pairs of cache lines.
type shard struct {
	_       structs.HostLayout
	ops     [2][Routes]atomic.Int64 // by direction and route
	bytes   [2][Routes]atomic.Int64
	host    atomic.Int64
	errors  atomic.Int64
	retries atomic.Int64
	nanos   atomic.Int64
	_       [96]byte
}

// A segment is the whole file.
type segment struct {
	_      structs.HostLayout
	Header header
	Slots  [slots]slot
}

const (
	headerSize    = 4096
	slotSize      = 12288
	segmentSize   = headerSize + slots*slotSize
	endedOffset   = 32 // of the header
	changesOffset = 40
)

var (
	_ [headerSize]byte    = [unsafe.Sizeof(header{})]byte{}
	_ [640]byte           = [unsafe.Sizeof(shard{})]byte{}
	_ [slotSize]byte      = [unsafe.Sizeof(slot{})]byte{}
	_ [segmentSize]byte   = [unsafe.Sizeof(segment{})]byte{}
	_ [endedOffset]byte   = [unsafe.Offsetof(header{}.Ended)]byte{}
	_ [changesOffset]byte = [unsafe.Offsetof(header{}.Changes)]byte{}
)

// at is the segment in memory.
func at(mem []byte) *segment {
	if len(mem) < segmentSize {
		panic("stats: memory smaller than a segment")
	}
	return (*segment)(unsafe.Pointer(unsafe.SliceData(mem)))
}
