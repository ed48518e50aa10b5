package p2p

import (
	"slices"
	"syscall"

	"github.com/culvert-io/culvert/gpu"
	abi "github.com/culvert-io/culvert/internal/abi/p2p"
	"github.com/culvert-io/culvert/soft/pcie"
)

// A PageTable is struct nvidia_p2p_page_table. It is invalid when the pin has ended.
type PageTable struct {
	Pages []uint64 // physical addresses
	UUID  gpu.UUID

	pin *pin
}

// Entries returns the number of pages.
func (t *PageTable) Entries() uint32 { return uint32(len(t.Pages)) }

// Port returns the GPU on the fabric.
func (t *PageTable) Port() *pcie.Function { return t.pin.card.port }

// A DMAMapping is struct nvidia_p2p_dma_mapping: a page table for one other device.
type DMAMapping struct {
	Addresses []uint64 // bus addresses
	Peer      *pcie.Function

	table *PageTable
	m     *pcie.Mapping
}

// DMAMapPages returns bus addresses of the pages for a peer. It does not check that
// the peer can reach them: the fabric does, at each DMA.
func (rm *RM) DMAMapPages(peer *pcie.Function, t *PageTable) (*DMAMapping, error) {
	if peer == nil || t == nil || t.pin == nil || t.pin.rm != rm || t.UUID == (gpu.UUID{}) {
		return nil, syscall.EINVAL
	}
	p := t.pin
	rm.at("p2p.map", p)
	if rm.fails("dma_mapping") || rm.fails("dma_addresses") {
		return nil, syscall.ENOMEM
	}
	if p.forced {
		return nil, abi.ENOTSUPP
	}
	m, err := peer.Map(t.Pages, PageSize)
	if err != nil {
		return nil, syscall.ENOMEM
	}
	d := &DMAMapping{
		Addresses: m.Addrs(), Peer: peer, table: t, m: m,
	}
	rm.mu.Lock()
	live := p.state == live
	if live {
		p.maps = append(p.maps, d)
	}
	rm.mu.Unlock()
	if !live {
		m.Unmap()
		return nil, syscall.EINVAL
	}
	return d, nil
}

// DMAUnmapPages ends a mapping. With a translating IOMMU it waits for DMA through it.
// It does nothing for a mapping that has ended.
func (rm *RM) DMAUnmapPages(peer *pcie.Function, t *PageTable, m *DMAMapping) error {
	if peer == nil || t == nil || m == nil || m.Peer != peer || m.table != t || t.pin.rm != rm {
		return syscall.EINVAL
	}
	rm.at("p2p.unmap", t.pin)
	m.m.Unmap()
	rm.mu.Lock()
	defer rm.mu.Unlock()
	t.pin.maps = slices.DeleteFunc(t.pin.maps, func(x *DMAMapping) bool { return x == m })
	return nil
}
