package kernels_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/gpu/kernels"
)

// A memory is a range of addresses, lent in segments of odd lengths.
type memory struct {
	base gpu.Addr
	data []byte
	rng  *rand.Rand
	max  int // longest segment
}

func newMemory(size, max int, seed uint64) *memory {
	return &memory{0x7f0000000000, make([]byte, size), rand.New(rand.NewPCG(seed, 1)), max}
}

func (m *memory) Bytes(a gpu.Addr, n uint64) ([][]byte, error) {
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

func (m *memory) at(off int) uint64 { return uint64(m.base) + uint64(off) }

func (m *memory) run(t testing.TB, name string, args ...uint64) {
	t.Helper()
	if err := m.launch(name, gpu.Dim{X: 2}, gpu.Dim{X: 3}, args...); err != nil {
		t.Fatal(err)
	}
}

func (m *memory) launch(name string, grid, block gpu.Dim, args ...uint64) error {
	k, ok := kernels.Lookup(name)
	if !ok {
		return fmt.Errorf("no kernel %s", name)
	}
	return k.Run(kernels.Launch{Grid: grid, Block: block, Args: args, Mem: m})
}
