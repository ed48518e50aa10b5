package nvfs

import (
	"syscall"

	abi "github.com/culvert-io/culvert/internal/abi/nvfs"
	"github.com/culvert-io/culvert/soft/kernel/p2p"
)

// mapBuffer is MAP: it binds a shadow buffer to GPU memory.
func (m *Module) mapBuffer(a *abi.MapArgs) error {
	m.stats.bar1.n.Add(1)
	m.use()
	err := m.bind(a)
	m.stats.bar1.done(err)
	if err != nil {
		m.unuse()
	}
	return err
}

func (m *Module) bind(a *abi.MapArgs) error {
	g, err := m.shadow(a.CPUVAddr, a.SbufBlock)
	if err != nil {
		return err
	}
	err = g.bind(a)
	g.mu.Lock()
	g.unpinClosed()
	g.drop()
	return err
}

// shadow returns the mgroup whose view begins at an address, with a reference for the
// caller.
func (m *Module) shadow(addr uint64, blocks uint32) (*mgroup, error) {
	v, off := m.find(addr)
	if v == nil || off != 0 || blocks == 0 || int(blocks) > len(v.g.pages) {
		return nil, syscall.EINVAL
	}
	g := v.g
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, syscall.EINVAL
	}
	g.refs++
	if g.state == abi.IO_FREE {
		g.cpuBase, g.mapped = addr, int(blocks)
		for i := range g.mapped {
			g.blocks[i] = abi.BLOCK_INIT
		}
	}
	return g, nil
}

func (g *mgroup) bind(a *abi.MapArgs) error {
	fence, err := newFencePage(a.EndFenceAddr)
	if err != nil {
		return err
	}
	g.mu.Lock()
	ok := g.swap(abi.IO_FREE, abi.IO_INIT)
	if ok {
		g.fence = fence
	}
	g.mu.Unlock()
	if !ok {
		return syscall.EINVAL
	}
	b, err := span(a.GPUVAddr, a.Size, g.mapped)
	if err != nil {
		return err
	}
	return g.pinBuffer(b)
}

// span returns the whole GPU pages around a buffer.
func span(addr uint64, size int64, blocks int) (gpuBuffer, error) {
	const mask, most = abi.GPU_PAGE_SIZE - 1, 1 << 48
	in := addr & mask
	if size < 0 || size > most || addr > most || in == 0 && size == 0 {
		return gpuBuffer{}, syscall.EINVAL
	}
	if size < abi.GPU_PAGE_SIZE && in+uint64(size) > uint64(blocks)*abi.BLOCK_SIZE {
		return gpuBuffer{}, syscall.EINVAL
	}
	return gpuBuffer{addr, uint64(size), addr - in, (in + uint64(size) + mask) &^ mask}, nil
}

// pinBuffer pins the GPU pages. The free callback may run before it returns.
func (g *mgroup) pinBuffer(b gpuBuffer) error {
	g.mu.Lock()
	g.buffer = b
	g.pin = true
	g.refs++
	g.mu.Unlock()
	rm, task := g.m.cfg.RM, g.m.cfg.RM.Self.Task()
	var t *p2p.PageTable
	var err error
	if g.m.cfg.Callback {
		t, err = rm.GetPages(task, b.start, b.n, g.freed)
	} else {
		t, err = rm.GetPagesPersistent(task, b.start, b.n, 0)
	}
	g.m.at("nvfs.map.pinned", g)
	g.mu.Lock()
	defer g.mu.Unlock()
	if err != nil {
		if g.pin {
			g.pin = false
			g.refs--
		}
		return err
	}
	if g.lost { // and the table with it
		return syscall.EINVAL
	}
	g.table = t
	if !g.swap(abi.IO_INIT, abi.IO_READY) {
		return syscall.EINVAL // the pin ends with the mapping
	}
	g.counted = true
	g.gpu = gpuLine(t)
	g.m.stats.register(g)
	return nil
}
