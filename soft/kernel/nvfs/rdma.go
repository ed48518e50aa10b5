package nvfs

import (
	"encoding/binary"
	"syscall"

	abi "github.com/culvert-io/culvert/internal/abi/nvfs"
)

// setRDMA keeps the keys under which a buffer is registered with a NIC.
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

// getRDMA answers into the argument. A buffer without keys gives zeros.
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

// clearRDMA forgets the keys. Its error is the module's odd one.
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

// onGroup runs fn with the lock of the mgroup at an address.
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

// rdmaAt is for the memory from an offset in the buffer on. Call with mu held.
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
