package p2p

import (
	"slices"
	"syscall"

	abi "github.com/culvert-io/culvert/internal/abi/p2p"
	"github.com/culvert-io/culvert/soft/pcie"
)

// A TegraMapping is struct nvidia_p2p_dma_mapping of the integrated GPUs'
// implementation: segments, not pages.
type TegraMapping struct {
	Version   uint32
	Addresses []uint64 // hw_address
	Lengths   []uint64 // hw_len
	Peer      *pcie.Function

	table *TegraTable
	m     *pcie.Mapping
}

// Entries is the number of segments.
func (m *TegraMapping) Entries() uint32 { return uint32(len(m.Addresses)) }

// tegraAllocations are what a DMA mapping needs of the kernel, in order.
var tegraAllocations = []string{"dma_mapping", "sgt", "sg_table", "hw_address", "hw_len"}

// DMAMapPages gives a table's pages bus addresses for a peer.
func (tg *Tegra) DMAMapPages(peer *pcie.Function, t *TegraTable) (*TegraMapping, error) {
	if peer == nil || t == nil || t.tg != tg || len(t.Pages) == 0 {
		return nil, syscall.EINVAL
	}
	if slices.ContainsFunc(tegraAllocations, tg.fails) {
		return nil, syscall.ENOMEM
	}
	m, err := peer.Map(t.Pages, userPage)
	if err != nil {
		return nil, syscall.ENOMEM
	}
	d := &TegraMapping{Version: abi.TEGRA_P2P_DMA_MAPPING_VERSION, Peer: peer, table: t, m: m}
	for _, a := range m.Addrs() {
		if i := len(d.Addresses) - 1; i >= 0 && d.Addresses[i]+d.Lengths[i] == a {
			d.Lengths[i] += userPage
			continue
		}
		d.Addresses, d.Lengths = append(d.Addresses, a), append(d.Lengths, userPage)
	}
	t.mm.mu.Lock()
	freed := t.freed
	if !freed {
		t.maps = append(t.maps, d)
		t.flags |= TegraMapped
	}
	t.mm.mu.Unlock()
	if freed {
		m.Unmap()
		return nil, syscall.EINVAL
	}
	return d, nil
}

// DMAUnmapPages ends a mapping. A second call does nothing.
func (tg *Tegra) DMAUnmapPages(m *TegraMapping) error {
	switch {
	case m == nil:
		return syscall.EINVAL
	case m.table == nil:
		return syscall.EFAULT
	}
	m.m.Unmap()
	t := m.table
	t.mm.mu.Lock()
	defer t.mm.mu.Unlock()
	t.maps = slices.DeleteFunc(t.maps, func(x *TegraMapping) bool { return x == m })
	if len(t.maps) == 0 {
		t.flags &^= TegraMapped
	}
	return nil
}

// FreeDMAMapping is the same as DMAUnmapPages.
func (tg *Tegra) FreeDMAMapping(m *TegraMapping) error { return tg.DMAUnmapPages(m) }
