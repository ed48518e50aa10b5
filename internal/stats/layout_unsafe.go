package stats

import (
	"structs"
	"sync/atomic"
	"unsafe"
)

// The layout of a segment. A change must raise layoutVersion, unless it gives a
// meaning to bytes that were unused, and 0 means that nothing is known.
const (
	layoutVersion = 2

	// Shards is the number of places in which a block counts. Concurrent users
	// name different ones, so that they do not share cache lines.
	Shards = 16
	// Routes is the number of routes that a block has counters for.
	Routes = 16

	// MaxName is how many bytes of a file's name are kept.
	MaxName = nameSize - 1

	slots        = 64
	nameSize     = 256
	declinedSize = 704
)

var magic = [8]byte{'c', 'u', 'l', 'v', 's', 't', 'a', 't'}

// A header is the start of the segment.
type header struct {
	_          structs.HostLayout
	Magic      [8]byte
	Version    uint32
	Slots      uint32
	_          [8]byte       // process and user in version 1: the kernel knows them
	Started    int64         // in nanoseconds since 1970
	_          [8]byte       // the end in version 1
	Changes    atomic.Uint64 // odd while a slot is given to another file
	RouteNames [Routes][16]byte
	Command    [nameSize]byte
	_          [headerSize - 48 - Routes*16 - nameSize]byte
}

// A slot is the record of one file.
type slot struct {
	_     structs.HostLayout
	State atomic.Uint32
	GPU   uint32 // the GPU's number + 1; 0 if unknown
	Name  [nameSize]byte
	// Ceiling is the pinned-copy rate in bytes per second; 0 if unknown.
	Ceiling  uint64
	Declined [declinedSize]byte // one line per decline
	_        [1024 - 16 - nameSize - declinedSize]byte
	Block    Block
	_        [1024]byte
}

// A Block sums transfers. Its zero value is ready to use.
type Block struct {
	_      structs.HostLayout
	shards [Shards]shard
}

// A shard fills whole pairs of cache lines: the counters, then 96 unused bytes.
type shard [80]atomic.Int64

// The positions of a shard's counters.
const (
	opsAt     = 0          // by direction and route: see index
	bytesAt   = 2 * Routes // likewise
	hostAt    = 4 * Routes
	errorsAt  = hostAt + 1
	retriesAt = hostAt + 2
	nanosAt   = hostAt + 3
	counters  = hostAt + 4
)

// A segment is the whole memory.
type segment struct {
	_      structs.HostLayout
	Header header
	Slots  [slots]slot
}

const (
	headerSize  = 4096
	slotSize    = 12288
	segmentSize = headerSize + slots*slotSize
)

var (
	_ [headerSize]byte  = [unsafe.Sizeof(header{})]byte{}
	_ [640]byte         = [unsafe.Sizeof(shard{})]byte{}
	_ [slotSize]byte    = [unsafe.Sizeof(slot{})]byte{}
	_ [segmentSize]byte = [unsafe.Sizeof(segment{})]byte{}
)

// at returns the segment in mapped memory.
func at(mem []byte) *segment {
	if len(mem) < segmentSize {
		panic("stats: memory smaller than a segment")
	}
	return (*segment)(unsafe.Pointer(unsafe.SliceData(mem)))
}

// headerAt returns the header of a segment of any version.
func headerAt(mem []byte) *header {
	if len(mem) < headerSize {
		panic("stats: memory smaller than a header")
	}
	return (*header)(unsafe.Pointer(unsafe.SliceData(mem)))
}
