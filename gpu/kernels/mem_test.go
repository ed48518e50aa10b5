package kernels_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/gpu/kernels"
	"github.com/culvert-io/culvert/gpu/kernels/kerneltest"
)

// A memory is a kerneltest.Memory with names for its places.
type memory struct {
	*kerneltest.Memory
	base gpu.Addr
	data []byte
}

func newMemory(size int) *memory {
	const base = 0x7f0000000000
	data := make([]byte, size)
	return &memory{kerneltest.NewMemory(base, data, rand.New(rand.NewPCG(1, 2))), base, data}
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
