package nvfs

import (
	"encoding/binary"
	"syscall"

	abi "github.com/culvert-io/culvert/internal/abi/nvfs"
)

// setRDMA sets the keys under which a buffer is registered with a NIC.
func (m *Module) setRDMA(a *abi.SetRDMAArgs) error {
	if a.Version < abi.MIN_RDMA_VER || a.Nkeys != 1 {
		return syscall.EINVAL
	}
	return m.onGroup(a.CPUVAddr, func(g *mgroup) error {
		g.rdma = &abi.RDMAInfo{
			Version: a.Version, Flags: a.Flags, LID: a.LID, QPNum: a.QPNum,
			Rkey: a.Rkey[0], GID: a.GID, DCKey: a.DCKey,
		}
		return nil
	})
}

// getRDMA writes the keys into the argument: zeros for a buffer without keys.
func (m *Module) getRDMA(arg *abi.Arg) error {
	addr, off := binary.LittleEndian.Uint64(arg[0:]), binary.LittleEndian.Uint64(arg[8:])
	return m.onGroup(addr, func(g *mgroup) error {
		info, err := g.rdmaAt(off)
		if err == nil {
			info.Encode(arg[abi.RDMAInfoAt:])
		}
		return err
	})
}

// clearRDMA removes the keys. Its only error is EPERM, as in the module.
func (m *Module) clearRDMA(arg *abi.Arg) error {
	err := m.onGroup(binary.LittleEndian.Uint64(arg[0:]), func(g *mgroup) error {
		g.rdma = nil
		return nil
	})
	if err != nil {
		return syscall.EPERM
	}
	return nil
}

// onGroup runs fn with the mgroup at an address locked.
func (m *Module) onGroup(addr uint64, fn func(g *mgroup) error) error {
	g, err := m.bound(addr)
	if err != nil {
		return err
	}
	g.mu.Lock()
	err = fn(g)
	g.drop()
	return err
}

// rdmaAt returns the keys for the buffer from an offset on. Call with mu held.
func (g *mgroup) rdmaAt(off uint64) (abi.RDMAInfo, error) {
	if g.rdma == nil {
		return abi.RDMAInfo{}, nil
	}
	if off > g.buffer.size {
		return abi.RDMAInfo{}, syscall.EINVAL
	}
	info := *g.rdma
	info.RemVAddr, info.Size = g.buffer.addr+off, uint32(g.buffer.size-off)
	return info, nil
}

// An RDMAInfo is how a storage driver's peer reaches the memory of a request: the key under
// which the process has registered it, and the queue pair that accepts the key.
type RDMAInfo struct {
	Addr        uint64 // for work requests
	Len         int
	RKey, DCKey uint32
	QPNum       uint32
	LID         uint16
	GID         [16]byte
}

// GPUSGListRDMAInfo is get_gpu_sglist_rdma_info, for storage whose peer moves the data by the
// process's own key. The pages count as moved from then on. It returns their number,
// NotGPUPages, or Invalid if they are not consecutive blocks of a running transfer, or the
// process has set no key.
func (o *Ops) GPUSGListRDMAInfo(pages []Page) (info RDMAInfo, n int) {
	if len(pages) == 0 {
		return info, NotGPUPages
	}
	g := o.m.group(&pages[0])
	if g == nil {
		return info, NotGPUPages
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	first := int(pages[0].Index % abi.MAX_BLOCKS)
	for i := range pages {
		_, ok := g.segment(first+i, nil)
		if !ok || g.rdma == nil || pages[i].Index != pages[0].Index+uint64(i) {
			return info, Invalid
		}
	}
	for i := range pages {
		g.blocks[first+i] = abi.BLOCK_DMA_START
	}
	info = RDMAInfo{
		Addr: g.buffer.start + uint64(g.gpuBase)*abi.GPU_PAGE_SIZE + uint64(first)*abi.BLOCK_SIZE, Len: len(pages) * abi.BLOCK_SIZE,
		RKey: g.rdma.Rkey, DCKey: g.rdma.DCKey, QPNum: g.rdma.QPNum, LID: g.rdma.LID,
	}
	binary.LittleEndian.PutUint64(info.GID[:], g.rdma.GID[0])
	binary.LittleEndian.PutUint64(info.GID[8:], g.rdma.GID[1])
	return info, len(pages)
}
