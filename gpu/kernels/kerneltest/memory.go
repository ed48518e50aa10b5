package kerneltest

import (
	"fmt"
	"math/rand/v2"

	"github.com/culvert-io/culvert/gpu"
)

// A Memory is a range of addresses in slices of random lengths.
type Memory struct {
	base gpu.Addr
	data []byte
	rng  *rand.Rand
	max  int // longest slice
}

// NewMemory is data at base.
func NewMemory(base gpu.Addr, data []byte, rng *rand.Rand) *Memory {
	return &Memory{base, data, rng, []int{1, 3, 7, 64, 4096}[rng.IntN(5)]}
}

// Bytes is the n bytes from a.
func (m *Memory) Bytes(a gpu.Addr, n uint64) ([][]byte, error) {
	off := uint64(a - m.base)
	if a < m.base || off > uint64(len(m.data)) || n > uint64(len(m.data))-off {
		return nil, fmt.Errorf("%d bytes at %v: %w", n, a, gpu.ErrIllegalAddress)
	}
	var segs [][]byte
	for b := m.data[off : off+n]; len(b) > 0; {
		k := min(1+m.rng.IntN(m.max), len(b))
		segs = append(segs, b[:k])
		b = b[k:]
	}
	return segs, nil
}
