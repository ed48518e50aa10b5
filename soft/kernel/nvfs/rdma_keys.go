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
