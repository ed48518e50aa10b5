package pcie

import (
	"fmt"

	"github.com/culvert-io/culvert/soft/internal/gate"
)

// IOMMU is the mode of the IOMMU between the root and memory.
type IOMMU uint8

const (
	Off         IOMMU = iota // bus addresses are physical addresses, as in passthrough mode
	Translating              // a device reaches only what was mapped for it
)

func (m IOMMU) String() string { return [...]string{"off", "translating"}[m] }

// A Mapping makes physical pages reachable for one device.
type Mapping struct {
	fn    *Function
	pages []uint64
	size  uint64 // of a page
	base  uint64 // bus address; 0 when bus addresses are physical
	addrs []uint64
	gate  gate.Gate // of accesses through the mapping
}

// Map makes pages of the given size reachable for the device through the IOMMU. The
// fabric checks reachability at each DMA. The slice must not change before Unmap.
func (fn *Function) Map(pages []uint64, size uint64) (*Mapping, error) {
	if len(pages) == 0 || size == 0 || size%pageSize != 0 {
		return nil, fmt.Errorf("pcie: %s: map %d pages of %d bytes: page size must be a multiple of %d", fn.name, len(pages), size, pageSize)
	}
	for _, p := range pages {
		if p%pageSize != 0 {
			return nil, fmt.Errorf("pcie: %s: map page %#x: address must be a multiple of %d", fn.name, p, pageSize)
		}
	}
	m := &Mapping{fn: fn, pages: pages, size: size, addrs: pages}
	if fn.f.cfg.IOMMU == Translating {
		if err := fn.translate(m); err != nil {
			return nil, err
		}
	}
	fn.f.mappings.Add(1)
	return m, nil
}

// translate gives m bus addresses.
func (fn *Function) translate(m *Mapping) error {
	fn.mu.Lock()
	defer fn.mu.Unlock()
	n := uint64(len(m.pages))
	if n > iovaEnd/m.size {
		return fmt.Errorf("pcie: %s: map %d pages of %d bytes: too many", fn.name, n, m.size)
	}
	var ok bool
	if m.base, ok = fn.iova.Take(n*m.size, pageSize, m); !ok {
		return fmt.Errorf("pcie: %s: map %d bytes: no bus addresses left", fn.name, n*m.size)
	}
	m.addrs = make([]uint64, n)
	for i := range m.addrs {
		m.addrs[i] = m.base + uint64(i)*m.size
	}
	return nil
}

// mapping returns the mapping that contains bus, or nil.
func (fn *Function) mapping(bus uint64) *Mapping {
	fn.mu.RLock()
	defer fn.mu.RUnlock()
	return fn.iova.Find(bus)
}

// run returns the physical address behind bus, and how many of n bytes are contiguous
// from there.
func (m *Mapping) run(bus uint64, n int) (phys uint64, length int) {
	off := bus - m.base
	i := int(off / m.size)
	off %= m.size
	phys = m.pages[i] + off
	left := m.size - off
	for i++; left < uint64(n) && i < len(m.pages) && m.pages[i] == phys+left; i++ {
		left += m.size
	}
	return phys, int(min(left, uint64(n)))
}

// Addrs returns the bus addresses of the pages, in order.
func (m *Mapping) Addrs() []uint64 { return m.addrs }

// Unmap removes the mapping. With a translating IOMMU it waits for accesses through
// it, in a second call, too.
func (m *Mapping) Unmap() {
	if !m.gate.Shut() {
		return
	}
	m.fn.f.mappings.Add(-1)
	if m.base == 0 {
		return
	}
	m.fn.mu.Lock()
	defer m.fn.mu.Unlock()
	m.fn.iova.Remove(m.base)
}
