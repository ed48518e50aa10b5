//go:build amd64

package wc

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// Fence waits until earlier stores have left the CPU's buffers.
func Fence() { fence() }

//go:noescape
func fence()

// loadFence discards data that earlier streaming loads have prefetched, and waits
// for earlier stores.
//
//go:noescape
func loadFence()

// storeStream needs n >= 32.
//
//go:noescape
func storeStream(dst, src *byte, n int)

// loadStream needs src and n to be multiples of the line size.
//
//go:noescape
func loadStream(dst, src *byte, n int)

// loadLine loads the line that contains src.
//
//go:noescape
func loadLine(dst *[line]byte, src *byte)

// streaming is a variable so that tests can switch it.
var streaming = cpu.X86.HasAVX2

func store(dst, src []byte) {
	if !streaming || len(src) < 32 {
		copy(dst, src)
		return
	}
	storeStream(&dst[0], &src[0], len(src))
}

func loadBarrier() {
	if streaming {
		loadFence()
	}
}

func load(dst, src []byte) {
	if len(src) == 0 {
		return
	}
	if !streaming {
		copy(dst, src)
		return
	}
	if in := int(uintptr(unsafe.Pointer(&src[0])) % line); in != 0 {
		n := edge(dst, src, in)
		dst, src = dst[n:], src[n:]
	}
	if n := len(src) &^ (line - 1); n != 0 {
		loadStream(&dst[0], &src[0], n)
		dst, src = dst[n:], src[n:]
	}
	if len(src) != 0 {
		edge(dst, src, 0)
	}
}

// edge loads the part of src in the line of its first byte, which is at offset in
// of the line.
func edge(dst, src []byte, in int) int {
	var buf [line]byte
	loadLine(&buf, &src[0])
	return copy(dst[:len(src)], buf[in:min(in+len(src), line)])
}
