package rm

import (
	"sync"

	"github.com/culvert-io/culvert/gpu"
)

// A Mapping is GPU memory that is mapped into the process through BAR1.
type Mapping struct {
	base   gpu.Addr
	method Method
	mem    []byte // exactly the range
	close  func() error
}

// newMapping is the mapping of a range in mem, which starts at a page.
func newMapping(r request, e extent, m Method, mem []byte, unmap func() error) *Mapping {
	return &Mapping{r.addr, m, mem[e.skip : e.skip+r.n : e.skip+r.n], sync.OnceValue(unmap)}
}

// Base is the GPU's address of the first byte.
func (m *Mapping) Base() gpu.Addr { return m.base }

// Len is the size in bytes.
func (m *Mapping) Len() int { return len(m.mem) }

// Method is how the memory was mapped.
func (m *Mapping) Method() Method { return m.method }

// Bytes is the memory, until Close. Copy with package wc: ordinary loads are slow
// and stores need a fence.
func (m *Mapping) Bytes() []byte { return m.mem }

// Close unmaps the memory, which must not be in use. A second call returns the
// result of the first.
func (m *Mapping) Close() error { return m.close() }
