package wc

import "encoding/binary"

// chunk limits the time in assembly, where the scheduler cannot preempt.
const chunk = 64 << 10

// line is the size of a bus transfer in bytes.
const line = 64

// Store copies src to dst, which is write-combining memory, and returns the
// number of bytes: the shorter of the two lengths. The slices must not overlap.
func Store(dst, src []byte) int {
	n := min(len(dst), len(src))
	dst, src = dst[:n], src[:n]
	for len(src) > chunk {
		store(dst[:chunk], src[:chunk])
		dst, src = dst[chunk:], src[chunk:]
	}
	store(dst, src)
	return n
}

// Load copies src, which is write-combining memory, to dst, and returns the
// number of bytes: the shorter of the two lengths. The slices must not overlap.
// It may also read the rest of the first and last 64-byte line of src.
func Load(dst, src []byte) int {
	LoadBarrier()
	return LoadNext(dst, src)
}

// LoadBarrier is before a first LoadNext or LoadWord: bytes that were fetched earlier may
// be old.
func LoadBarrier() { loadBarrier() }

// LoadNext is Load for places that changed no later than the last LoadBarrier or Load: it
// does not wait for earlier loads, so that several are in flight.
func LoadNext(dst, src []byte) int {
	n := min(len(dst), len(src))
	dst, src = dst[:n], src[:n]
	for len(src) > chunk {
		load(dst[:chunk], src[:chunk])
		dst, src = dst[chunk:], src[chunk:]
	}
	load(dst, src)
	return n
}

// LoadWord is LoadNext for the first 8 bytes of src, as a little-endian number. It is a
// plain load: a streaming one has at least 16 bytes, and takes twice as long on memory
// that is cached.
func LoadWord(src []byte) uint64 { return binary.LittleEndian.Uint64(src) }
