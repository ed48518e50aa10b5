package wc

// chunk bounds the time that one copy spends in assembly, where the scheduler
// cannot interrupt it.
const chunk = 64 << 10

// line is what the bus moves at a time.
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
// number of bytes: the shorter of the two lengths. The slices must not
// overlap. It may read, and drop, the rest of the 64-byte lines that src
// begins and ends in.
func Load(dst, src []byte) int {
	n := min(len(dst), len(src))
	dst, src = dst[:n], src[:n]
	for len(src) > chunk {
		load(dst[:chunk], src[:chunk])
		dst, src = dst[chunk:], src[chunk:]
	}
	load(dst, src)
	return n
}
