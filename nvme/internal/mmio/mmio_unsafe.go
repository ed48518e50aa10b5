// Package mmio reaches the registers of a device that are mapped into the
// process: with loads and stores of the register's size, in program order.
package mmio

import (
	"math"
	"sync/atomic"
	"unsafe"

	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/wc"
)

// Registers is a mapping of a BAR. Accesses outside of it read as ones and
// write nothing.
type Registers struct {
	mem []byte
}

// Of makes registers of a mapping, which must outlive them.
func Of(m dev.Mapping) Registers { return Registers{dev.Bytes(m)} }

// Mapped is the mapping, for a GPU that is to ring doorbells.
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

// Load64 reads a register of 64 bits, in halves: not every device takes it as
// one.
func (r Registers) Load64(off uint64) uint64 {
	return uint64(r.Load32(off)) | uint64(r.Load32(off+4))<<32
}

// Store32 writes a register, after everything that was stored before.
func (r Registers) Store32(off uint64, v uint32) {
	if r.has(off, 4) {
		wc.Fence()
		store((*uint32)(unsafe.Pointer(&r.mem[off])), v)
	}
}

// Store64 writes a register of 64 bits, in halves, the lower one first.
func (r Registers) Store64(off, v uint64) {
	r.Store32(off, uint32(v))
	r.Store32(off+4, uint32(v>>32))
}
