package kernels

import (
	"fmt"
	"slices"

	"github.com/culvert-io/culvert/gpu"
)

// bytesOf is m.Bytes, but returns nothing for empty ranges and fails for ranges
// that wrap around.
func bytesOf(m Mem, a gpu.Addr, n uint64) ([][]byte, error) {
	if n == 0 {
		return nil, nil
	}
	if uint64(a)+n-1 < uint64(a) {
		return nil, fmt.Errorf("%d bytes at %v: %w", n, a, gpu.ErrIllegalAddress)
	}
	return m.Bytes(a, n)
}

// eachPair iterates over two lists of slices of the same total length in step.
func eachPair(a, b [][]byte, do func(x, y []byte)) {
	var x, y []byte
	for {
		for len(x) == 0 {
			if len(a) == 0 {
				return
			}
			x, a = a[0], a[1:]
		}
		for len(y) == 0 {
			if len(b) == 0 {
				return
			}
			y, b = b[0], b[1:]
		}
		n := min(len(x), len(y))
		do(x[:n], y[:n])
		x, y = x[n:], y[n:]
	}
}

// load copies n bytes from memory.
func load(m Mem, a gpu.Addr, n uint64) ([]byte, error) {
	segs, err := bytesOf(m, a, n)
	return slices.Concat(segs...), err
}

// store copies b to memory.
func store(m Mem, a gpu.Addr, b []byte) error {
	segs, err := bytesOf(m, a, uint64(len(b)))
	for _, s := range segs {
		b = b[copy(s, b):]
	}
	return err
}

// loadAligned is load for addresses that must be multiples of 8.
func loadAligned(m Mem, a gpu.Addr, n uint64) ([]byte, error) {
	if a%8 != 0 {
		return nil, fmt.Errorf("%d bytes at %v: %w", n, a, gpu.ErrMisalignedAddress)
	}
	return load(m, a, n)
}

// storeAligned is store for addresses that must be multiples of 8.
func storeAligned(m Mem, a gpu.Addr, b []byte) error {
	if a%8 != 0 {
		return fmt.Errorf("%d bytes at %v: %w", len(b), a, gpu.ErrMisalignedAddress)
	}
	return store(m, a, b)
}
