package nvme

import (
	"math"
	"sync/atomic"
	"syscall"

	abi "github.com/culvert-io/culvert/internal/abi/nvme"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/soft/pcie"
)

// Load32 reads a register. All bits are set if there is none, or the drive was
// removed.
func (c *Controller) Load32(off uint64) uint32 {
	if !c.regs.has(off, 4) || c.fn.Removed() {
		return abi.GONE
	}
	return c.regs.load32(off)
}

// Load64 reads two registers, or one of 64 bits.
func (c *Controller) Load64(off uint64) uint64 {
	if !c.regs.has(off, 8) || c.fn.Removed() {
		return math.MaxUint64
	}
	return c.regs.load64(off)
}

// Store32 writes a register. Read-only registers do not change.
func (c *Controller) Store32(off uint64, v uint32) {
	if !c.regs.has(off, 4) || c.fn.Removed() || readOnly(off) {
		return
	}
	c.regs.store32(off, v)
	switch {
	case off == abi.REG_CC:
		c.kick()
	case off >= abi.REG_SQ0TD:
		c.doorbell(off)
	}
}

// Store64 writes two registers, or one of 64 bits.
func (c *Controller) Store64(off, v uint64) {
	if off != abi.REG_ASQ && off != abi.REG_ACQ {
		c.Store32(off, uint32(v))
		c.Store32(off+4, uint32(v>>32))
		return
	}
	if !c.fn.Removed() {
		c.regs.store64(off, v)
	}
}

// BARSize returns the size of BAR0.
func (c *Controller) BARSize() uint64 { return uint64(len(c.regs.mem)) }

func readOnly(off uint64) bool {
	return off < abi.REG_INTMS || off == abi.REG_CSTS || off >= abi.REG_ACQ+8 && off < abi.REG_SQ0TD
}

// doorbell serves the queue of a doorbell.
func (c *Controller) doorbell(off uint64) {
	stride := uint64(4) << c.cfg.Stride
	i := (off - abi.REG_SQ0TD) / stride
	if (off-abi.REG_SQ0TD)%stride != 0 || i/2 >= uint64(len(c.sqs)) {
		return
	}
	if i%2 == 0 {
		c.ring(c.sqs[i/2].Load())
	} else {
		c.drain(c.cqs[i/2].Load())
	}
}

// MapBAR maps the first n bytes of BAR0. The controller polls the registers until
// Unmap.
func (c *Controller) MapBAR(n, prot int) (*BARMapping, error) {
	if n <= 0 || uint64(n) > c.BARSize() {
		return nil, syscall.EINVAL
	}
	m, err := c.regs.mapping(n, prot)
	if err != nil {
		return nil, err
	}
	c.mappings.Add(1)
	c.kick()
	return &BARMapping{m: m, c: c}, nil
}

// A BARMapping is a program's mapping of BAR0.
type BARMapping struct {
	m    dev.Mapping
	c    *Controller
	gone atomic.Bool
}

// Addr returns the address of the first register.
func (m *BARMapping) Addr() uintptr { return m.m.Addr() }

// Len returns the number of bytes.
func (m *BARMapping) Len() int { return m.m.Len() }

// Unmap removes the mapping. A second call does nothing.
func (m *BARMapping) Unmap() error {
	if m.gone.Swap(true) {
		return nil
	}
	m.c.mappings.Add(-1)
	return m.m.Unmap()
}

// A barTarget is BAR0 for other devices.
type barTarget struct{ c *Controller }

func (t barTarget) Acquire(segs [][]byte, off uint64, n int, d pcie.Dir) ([][]byte, pcie.Releaser, error) {
	segs, _, err := pcie.Memory(t.c.regs.mem).Acquire(segs, off, n, d)
	return segs, t, err
}

// Release runs after the other device's access.
func (t barTarget) Release() { t.c.kick() }
