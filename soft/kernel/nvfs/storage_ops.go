package nvfs

import (
	"syscall"

	abi "github.com/culvert-io/culvert/internal/abi/nvfs"
	"github.com/culvert-io/culvert/soft/kernel/p2p"
	"github.com/culvert-io/culvert/soft/pcie"
)

// Ops is the table for storage modules, struct nvfs_dma_rw_ops. Its methods return
// the module's numbers.
type Ops struct{ m *Module }

// Results of the methods, other than counts.
const (
	NoGPUPages  = 0  // BlkRqMapSG, DMAUnmapSG: the caller handles ordinary memory
	Invalid     = -1 // the request must fail
	NotGPUPages = -2 // DMAMapSGAttrs
)

// An SG is a segment of a request: blocks within one GPU page.
type SG struct {
	Bus uint64 // set by DMAMapSGAttrs
	Len int

	g     *mgroup
	first int // block
	page  int // of the GPU buffer
	in    uint64
}

// BlkRqMapSG appends the segments of a request's pages to sg. It returns their
// number, NoGPUPages, or Invalid if GPU and CPU pages are mixed.
func (o *Ops) BlkRqMapSG(pages []Page, sg []SG) ([]SG, int) {
	before := len(sg)
	cpu := 0
	for len(pages) > 0 {
		n := run(pages)
		if g := o.m.group(&pages[0]); g == nil {
			cpu += n
		} else {
			var ok bool
			if sg, ok = g.segments(pages[:n], sg); !ok {
				return sg[:before], Invalid
			}
		}
		pages = pages[n:]
	}
	switch {
	case len(sg) == before:
		return sg, NoGPUPages
	case cpu > 0:
		o.m.stats.mixed.Add(1)
		return sg[:before], Invalid
	}
	return sg, len(sg) - before
}

// run returns how many pages at the start of a list belong to one mgroup.
func run(pages []Page) int {
	base := pages[0].Index / abi.MAX_BLOCKS
	for i := range pages {
		if pages[i].Index/abi.MAX_BLOCKS != base {
			return i
		}
	}
	return len(pages)
}

// segments appends pages of the mgroup to a list.
func (g *mgroup) segments(pages []Page, sg []SG) ([]SG, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range pages {
		var ok bool
		if sg, ok = g.segment(int(pages[i].Index%abi.MAX_BLOCKS), sg); !ok {
			return sg, false
		}
	}
	return sg, true
}

// segment appends a block to a list, or to its last segment. The block must belong to
// a running transfer; a mirror submits it once for each leg. Call with mu held.
func (g *mgroup) segment(block int, sg []SG) ([]SG, bool) {
	page, in := g.gpuBase+block/abi.BLOCKS_PER_PAGE, uint64(block%abi.BLOCKS_PER_PAGE)*abi.BLOCK_SIZE
	if g.table == nil || block >= g.mapped || g.blocks[block] < abi.BLOCK_QUEUED || g.blocks[block] > abi.BLOCK_DONE || page >= len(g.table.Pages) {
		return sg, false
	}
	if k := len(sg); k > 0 {
		last := &sg[k-1]
		if last.g == g && last.page == page && last.in+uint64(last.Len) == in {
			last.Len += abi.BLOCK_SIZE
			return sg, true
		}
	}
	return append(sg, SG{g: g, first: block, page: page, in: in, Len: abi.BLOCK_SIZE}), true
}

// DMAMapSGAttrs sets the bus addresses of segments for a device. It returns their
// number, NotGPUPages or Invalid.
func (o *Ops) DMAMapSGAttrs(dev *pcie.Function, sg []SG) int {
	for i := range sg {
		s := &sg[i]
		if s.g == nil {
			o.DMAUnmapSG(sg[:i])
			return NotGPUPages
		}
		if err := s.g.address(dev, s); err != nil {
			o.m.stats.dmaMap.Add(1)
			o.DMAUnmapSG(sg[:i])
			return Invalid
		}
	}
	return len(sg)
}

// address sets the bus address of a segment and takes a reference.
func (g *mgroup) address(dev *pcie.Function, s *SG) error {
	d, err := g.peer(dev)
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s.Bus = d.Addresses[s.page] + s.in
	for i := range s.Len / abi.BLOCK_SIZE {
		g.blocks[s.first+i] = abi.BLOCK_DMA_START
	}
	g.refs++
	return nil
}

// peer maps the pinned pages for a device, once.
func (g *mgroup) peer(dev *pcie.Function) (*p2p.DMAMapping, error) {
	g.mu.Lock()
	d, t := g.peers[dev], g.table
	g.mu.Unlock()
	if d != nil {
		return d, nil
	}
	if t == nil {
		return nil, syscall.EIO
	}
	d, err := g.m.cfg.RM.DMAMapPages(dev, t)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	first := g.peers[dev]
	if first == nil {
		g.peers[dev] = d
	}
	g.mu.Unlock()
	if first == nil {
		return d, nil
	}
	_ = g.m.cfg.RM.DMAUnmapPages(dev, t, d) // another thread was first
	return first, nil
}

// DMAUnmapSG ends the use of segments. It returns their number, NoGPUPages or
// Invalid.
func (o *Ops) DMAUnmapSG(sg []SG) int {
	for i := range sg {
		g := sg[i].g
		if g == nil {
			return NoGPUPages
		}
		g.mu.Lock()
		for j := range sg[i].Len / abi.BLOCK_SIZE {
			if b := &g.blocks[sg[i].first+j]; *b == abi.BLOCK_DMA_START {
				*b = abi.BLOCK_DONE
			}
		}
		g.drop()
	}
	return len(sg)
}
