package nvfs

import (
	"math/rand/v2"
	"sync"

	abi "github.com/culvert-io/culvert/internal/abi/nvfs"
	"github.com/culvert-io/culvert/soft/internal/shared"
	"github.com/culvert-io/culvert/soft/kernel/p2p"
	"github.com/culvert-io/culvert/soft/pcie"
)

// An mgroup is a shadow buffer and the GPU memory that it stands for.
type mgroup struct {
	m     *Module
	id    uint64 // for sync points
	base  uint64 // base_index, the upper part of page indexes
	mem   []byte
	pages []Page

	mu    sync.Mutex
	ended sync.Cond // signalled when a transfer ends
	state abi.State
	// refs counts the mapping, the pin, transfers and segments in use by a device.
	// The last one frees the mgroup.
	refs   int
	busy   int  // transfers
	closed bool // the process has unmapped the buffer

	cpuBase uint64 // recorded by MAP
	mapped  int    // blocks in MAP's arguments
	blocks  []abi.BlockState
	gpuBase int // GPU page that block 0 stands for now

	look    extents // of the file read last; used by the running transfer only
	fence   fencePage
	rdma    *abi.RDMAInfo
	buffer  gpuBuffer
	pin     bool // the pin has a reference
	lost    bool // the free callback has begun
	counted bool // MAP is counted as active
	table   *p2p.PageTable
	gpu     string // for statistics
	peers   map[*pcie.Function]*p2p.DMAMapping
}

// A gpuBuffer is the buffer in MAP's arguments.
type gpuBuffer struct {
	addr, size uint64
	start, n   uint64 // in whole GPU pages
}

func newMgroup(m *Module, mem []byte) *mgroup {
	g := &mgroup{m: m, id: m.lastID.Add(1), mem: mem, refs: 1, peers: map[*pcie.Function]*p2p.DMAMapping{}}
	g.ended.L = &g.mu
	m.mu.Lock()
	for g.base == 0 || m.groups[g.base] != nil {
		g.base = 1<<32 + uint64(rand.Uint32())
	}
	m.mu.Unlock()
	n := len(mem) / abi.BLOCK_SIZE
	g.blocks = make([]abi.BlockState, n)
	g.pages = make([]Page, n)
	for i := range g.pages {
		g.pages[i] = Page{g.base*abi.MAX_BLOCKS + uint64(i), mem[i*abi.BLOCK_SIZE : (i+1)*abi.BLOCK_SIZE]}
		g.blocks[i] = abi.BLOCK_ALLOC
	}
	return g
}

// group returns the mgroup of a page, or nil.
func (m *Module) group(p *Page) *mgroup {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.groups[p.Index/abi.MAX_BLOCKS]
}

// hold takes a reference if addr is what MAP recorded.
func (g *mgroup) hold(addr uint64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || g.cpuBase != addr {
		return false
	}
	g.refs++
	return true
}

// swap changes the state. Like the module's, it makes the mgroup unusable if the
// state is not the expected one. Call with mu held.
func (g *mgroup) swap(from, to abi.State) bool {
	if g.state == from {
		g.state = to
		return true
	}
	if g.state != abi.IO_TERMINATED {
		g.state = abi.IO_CALLBACK_END
	}
	return false
}

// begin starts a transfer, for which the caller has a reference.
func (g *mgroup) begin() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.swap(abi.IO_READY, abi.IO_IN_PROGRESS) {
		return false
	}
	g.busy++
	return true
}

// running reports whether a transfer may continue.
func (g *mgroup) running() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state == abi.IO_IN_PROGRESS
}

// end ends a transfer and drops its reference.
func (g *mgroup) end() {
	g.m.at("nvfs.io.end", g)
	g.mu.Lock()
	switch g.state {
	case abi.IO_IN_PROGRESS:
		g.state = abi.IO_READY
	case abi.IO_TERMINATE_REQ:
		g.state = abi.IO_TERMINATED
	case abi.IO_CALLBACK_REQ:
		g.state = abi.IO_CALLBACK_END
	}
	g.busy--
	g.ended.Broadcast()
	g.unpinClosed()
	g.drop()
}

// unmapped closes the VMA. It never waits: a running transfer finishes the release.
func (g *mgroup) unmapped() {
	g.mu.Lock()
	g.closed = true
	switch g.state {
	case abi.IO_FREE, abi.IO_READY:
		g.state = abi.IO_TERMINATED
	case abi.IO_IN_PROGRESS:
		g.state = abi.IO_TERMINATE_REQ
	}
	g.unpinClosed()
	g.drop()
}

// unpinClosed drops the pin of an unmapped buffer, unless the free callback does, and
// the end-fence page. Call with mu held.
func (g *mgroup) unpinClosed() {
	if !g.closed || g.busy > 0 {
		return
	}
	g.fence = fencePage{}
	if g.pin && !g.lost {
		g.pin = false
		g.refs--
	}
}

// freed is the free callback. When it returns no device accesses the memory.
func (g *mgroup) freed(*p2p.Task, *p2p.PageTable) {
	g.m.at("nvfs.callback", g)
	g.mu.Lock()
	if !g.pin { // another thread puts the pages and waits for this callback
		g.mu.Unlock()
		return
	}
	g.lost = true
	switch g.state {
	case abi.IO_IN_PROGRESS, abi.IO_TERMINATE_REQ:
		g.state = abi.IO_CALLBACK_REQ
	case abi.IO_FREE:
		g.state = abi.IO_TERMINATED
	case abi.IO_INIT, abi.IO_READY:
		g.state = abi.IO_CALLBACK_END
	}
	for g.busy > 0 {
		g.ended.Wait()
	}
	g.mu.Unlock()
	g.m.at("nvfs.callback.drained", g) // the I/O has returned, and the page does not say DIED
	g.mu.Lock()
	clear(g.peers) // their addresses end with the pin
	g.table = nil
	g.fence.died()
	g.pin = false
	counted := g.counted
	g.counted = false
	g.mu.Unlock()
	g.m.at("nvfs.callback.end", g)
	if counted {
		g.m.stats.callbacks.Add(1)
		g.m.stats.unregister(g)
		g.m.unuse()
	}
	g.mu.Lock()
	g.drop()
}

// drop drops a reference. Call with mu held; drop unlocks it.
func (g *mgroup) drop() {
	if g.refs--; g.refs < 0 {
		panic("nvfs: a reference to an mgroup was dropped twice")
	}
	last := g.refs == 0
	if last {
		g.state = abi.IO_UNPIN_PAGES_ALREADY_INVOKED
	}
	g.mu.Unlock()
	if last {
		g.free()
	}
}

// free runs for the last reference. Only a late callback can still use the mgroup.
func (g *mgroup) free() {
	g.m.at("nvfs.free", g)
	g.look.close()
	if t := g.table; t != nil {
		rm, task := g.m.cfg.RM, g.m.cfg.RM.Self.Task()
		for peer, d := range g.peers {
			_ = rm.DMAUnmapPages(peer, t, d) // a revoke may have unmapped them
		}
		if g.m.cfg.Callback {
			_ = rm.PutPages(task, g.buffer.start, t) // or ended the pin
		} else {
			_ = rm.PutPagesPersistent(task, g.buffer.start, t, 0)
		}
	}
	m := g.m
	if g.counted {
		m.stats.unregister(g)
		m.stats.frees.Add(1)
		m.unuse()
	}
	m.mu.Lock()
	delete(m.groups, g.base)
	m.mu.Unlock()
	m.stats.shadow.Add(-int64(len(g.mem)))
	_ = shared.Unmap(g.mem) // it was mapped here
}
