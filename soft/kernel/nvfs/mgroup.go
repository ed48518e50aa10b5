package nvfs

import (
	"math/rand/v2"
	"sync"

	"golang.org/x/sys/unix"

	abi "github.com/culvert-io/culvert/internal/abi/nvfs"
	"github.com/culvert-io/culvert/soft/kernel/p2p"
	"github.com/culvert-io/culvert/soft/pcie"
)

// An mgroup is a shadow buffer and the GPU memory that it stands for.
type mgroup struct {
	m     *Module
	id    uint64 // for sync points
	base  uint64 // base_index, by which a page finds its mgroup
	mem   []byte
	pages []Page

	mu    sync.Mutex
	ended sync.Cond // a transfer has
	state abi.State
	// refs counts the mapping, the pin, transfers, and requests that are mapped
	// for a device. What has none is freed.
	refs   int
	busy   int  // transfers
	closed bool // the program has unmapped the buffer

	cpuBase uint64 // recorded by MAP
	mapped  int    // blocks that MAP was told of
	blocks  []abi.BlockState
	gpuBase int // GPU page that block 0 stands for now

	look    extents // of the file that was read last; belongs to the transfer that runs
	fence   fencePage
	rdma    *abi.RDMAInfo
	buffer  gpuBuffer
	pin     bool // the pin's reference is held
	lost    bool // the free callback has begun
	counted bool // MAP has succeeded, and what it counts was not taken back
	table   *p2p.PageTable
	gpu     string // for statistics
	peers   map[*pcie.Function]*p2p.DMAMapping
}

// A gpuBuffer is what MAP was told of.
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

// group finds the mgroup of a page.
func (m *Module) group(p *Page) *mgroup {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.groups[p.Index/abi.MAX_BLOCKS]
}

// hold takes a reference for a caller who names the address that MAP recorded.
func (g *mgroup) hold(addr uint64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || g.cpuBase != addr {
		return false
	}
	g.refs++
	return true
}

// swap moves the state along an edge. Like the module's it takes a state that it
// did not expect for the beginning of the end: the mgroup can never be used
// again. Call with mu held.
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

// begin takes the mgroup for a transfer, whose reference the caller has.
func (g *mgroup) begin() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.swap(abi.IO_READY, abi.IO_IN_PROGRESS) {
		return false
	}
	g.busy++
	return true
}

// running reports whether a transfer may go on.
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

// unmapped is the VMA's close. It never waits: where a transfer runs, that
// finishes the release.
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

// unpinClosed drops the pin of a buffer that nobody can use any more, unless
// the free callback has it, and lets go of the program's end-fence page. Call
// with mu held.
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

// freed is the free callback: the owner takes the memory back. When it returns
// no device touches the memory.
func (g *mgroup) freed(*p2p.Task, *p2p.PageTable) {
	g.m.at("nvfs.callback", g)
	g.mu.Lock()
	if !g.pin { // it is being put by somebody who waits for this callback
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
	clear(g.peers) // their addresses go with the pin
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

// drop gives a reference back. Call with mu held; it is released.
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

// free is for the last reference: nobody else knows the mgroup any more, but
// for a callback that comes too late.
func (g *mgroup) free() {
	g.m.at("nvfs.free", g)
	g.look.close()
	if t := g.table; t != nil {
		rm, task := g.m.cfg.RM, g.m.cfg.RM.Self.Task()
		for peer, d := range g.peers {
			_ = rm.DMAUnmapPages(peer, t, d) // one that a revoke has ended is as good as unmapped
		}
		if g.m.cfg.Callback {
			_ = rm.PutPages(task, g.buffer.start, t) // the same holds for the pin
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
	_ = unix.Munmap(g.mem) // it was mapped here
}
