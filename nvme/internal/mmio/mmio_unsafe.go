// Package mmio accesses device registers that are mapped into the process, with
// loads and stores of the register's size, in program order.
package mmio

import (
	"math"
	"sync/atomic"
	"unsafe"

	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/wc"
)

// Registers is a mapping of a BAR. Loads outside of it return all ones, stores
// have no effect.
type Registers struct {
	mem []byte
}

// Of is the registers in a mapping, which must stay mapped.
func Of(m dev.Mapping) Registers { return Registers{dev.Bytes(m)} }

// Mapped is the mapping, to be registered with a GPU that writes doorbells.
func (r Registers) Mapped() []byte { return r.mem }

// BARSize is the size of the mapping.
func (r Registers) BARSize() uint64 { return uint64(len(r.mem)) }

func (r Registers) has(off, size uint64) bool {
	return off%size == 0 && off < uint64(len(r.mem)) && uint64(len(r.mem))-off >= size
}

// Load32 reads a register.
func (r Registers) Load32(off uint64) uint32 {
	if !r.has(off, 4) {
		return math.MaxUint32
	}
	return atomic.LoadUint32((*uint32)(unsafe.Pointer(&r.mem[off])))
}

// Load64 reads a 64-bit register in two halves: not every device supports 64-bit
// accesses.
func (r Registers) Load64(off uint64) uint64 {
	return uint64(r.Load32(off)) | uint64(r.Load32(off+4))<<32
}

// Store32 writes a register, after all earlier stores.
func (r Registers) Store32(off uint64, v uint32) {
	if r.has(off, 4) {
		wc.Fence()
		store((*uint32)(unsafe.Pointer(&r.mem[off])), v)
	}
}

// Store64 writes a 64-bit register in two halves, the lower one first.
func (r Registers) Store64(off, v uint64) {
	r.Store32(off, uint32(v))
	r.Store32(off+4, uint32(v>>32))
}
