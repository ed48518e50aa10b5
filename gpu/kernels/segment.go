package kernels

import (
	"fmt"

	"github.com/culvert-io/culvert/gpu"
)

// bytesOf is m.Bytes for ranges that may be empty, which a GPU never looks at,
// or wrap around, which no memory does.
func bytesOf(m Mem, a gpu.Addr, n uint64) ([][]byte, error) {
	if n == 0 {
		return nil, nil
	}
	if uint64(a)+n-1 < uint64(a) {
		return nil, fmt.Errorf("%d bytes at %v: %w", n, a, gpu.ErrIllegalAddress)
	}
	return m.Bytes(a, n)
}

// eachPair walks two lists of segments of the same total length in step.
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
