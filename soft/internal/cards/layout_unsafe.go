package cards

import (
	"structs"
	"unsafe"
)

const (
	// version is that of the file, memoryVersion that of the memory. Processes must have the
	// same.
	version       = 1
	memoryVersion = 2

	maxCards = 16
	// words is the number of 64-bit words with the bits of a unit's processes.
	words        = 4
	maxProcesses = 64 * words

	page      = 4 << 10
	alignment = 2 << 20 // of the cards' memory, so that the kernel can use large pages
)

var magic = [16]byte([]byte("culvert cards\n\x00\x00"))

// A header is the first page of the memory.
type header struct {
	_        structs.HostLayout
	Magic    [16]byte
	Version  uint32
	_        uint32
	ID       uint64
	Settings [1024]byte

	// What follows is guarded by the lock.
	Serial    uint64 // of the last process
	Committed uint64 // bytes of frames that were ever allocated
	Free      [maxCards]int64
	// Attaching is the process that holds the lock before it has a place. The lock of the
	// file guards it.
	Attaching place
	_         [64]byte
	Lock      uint32 // on a cache line of its own
	_         [60]byte
}

// A place is a process among those that have the memory.
type place struct {
	_                 structs.HostLayout
	PID, Start, Stack uint64
	Serial            uint64 // 0: free
}

func (p *place) process() process { return process{p.PID, p.Start, p.Stack} }

func (p *place) set(who process, serial uint64) {
	p.PID, p.Start, p.Stack, p.Serial = who.pid, who.start, who.stack, serial
}

// An object is what processes know of memory that one of them shares. It is at the first
// unit of the memory.
type object struct {
	_     structs.HostLayout
	ID    uint64 // 0: not shared
	Count uint32 // of units
	_     uint32
}

var (
	_ [page - unsafe.Sizeof(header{})]byte
	_ [32]byte = [unsafe.Sizeof(place{})]byte{}
	_ [16]byte = [unsafe.Sizeof(object{})]byte{}
)

// A layout is where the parts are.
type layout struct {
	places uint64
	events uint64
	cards  []cardLayout
	size   uint64
}

type cardLayout struct {
	units, frames                       int
	holders, objects, next, used, bytes uint64
	size                                uint64 // of bytes
}

func roundUp(n, to uint64) uint64 { return (n + to - 1) / to * to }

func newLayout(cfg Config) layout {
	l := layout{places: page}
	at := l.places + maxProcesses*uint64(unsafe.Sizeof(place{}))
	take := func(n, align uint64) uint64 {
		from := roundUp(at, align)
		at = from + n
		return from
	}
	l.events = take(maxEvents*uint64(unsafe.Sizeof(eventSlot{})), page)
	for _, size := range cfg.Sizes {
		n := size / cfg.Unit
		l.cards = append(l.cards, cardLayout{
			units:   int(n),
			frames:  int(size / cfg.Frame),
			size:    size,
			holders: take(8*words*n, page),
			objects: take(uint64(unsafe.Sizeof(object{}))*n, page),
			next:    take(4*n, page),
			used:    take(size/cfg.Frame, page),
		})
	}
	for i := range l.cards {
		l.cards[i].bytes = take(l.cards[i].size, alignment)
	}
	l.size = roundUp(at, alignment)
	return l
}

func headerOf(mem []byte) *header { return (*header)(unsafe.Pointer(unsafe.SliceData(mem))) }

// part returns n elements at an offset, which a layout has aligned.
func part[T any](mem []byte, off uint64, n int) []T {
	var zero T
	end := off + uint64(n)*uint64(unsafe.Sizeof(zero))
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(mem[off:end]))), n)
}
