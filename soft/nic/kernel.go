package nic

import (
	"fmt"
	"syscall"

	"github.com/culvert-io/culvert/internal/verbs"
	"github.com/culvert-io/culvert/rdma"
	"github.com/culvert-io/culvert/soft/kernel/peermem"
	"github.com/culvert-io/culvert/soft/pcie"
)

// MapSG makes a region of memory that a kernel module has mapped for the adapter:
// ib_map_mr_sg. The module must close the region before it unmaps the memory. The region
// begins at the first bus address in work requests. It is no registration of the process,
// and does not end with it.
func (n *NIC) MapSG(pd rdma.PD, list []pcie.Range, access rdma.Access) (rdma.MR, error) {
	p, ok := pd.(*verbs.PD)
	if !ok || len(list) == 0 {
		return nil, fmt.Errorf("%s: map %d segments: %w", n.cfg.Name, len(list), syscall.EINVAL)
	}
	r := &region{nic: n, end: func() error { return nil }}
	size := uint64(0)
	for _, g := range list {
		r.sg = append(r.sg, peermem.Segment{Addr: g.Bus, Len: uint64(g.Len)})
		size += uint64(g.Len)
	}
	r.index()
	mr, err := p.Map(r, list[0].Bus, size, access)
	if err != nil {
		return nil, fmt.Errorf("%s: map memory: %w", n.cfg.Name, err)
	}
	return mr, nil
}
