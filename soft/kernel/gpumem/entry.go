package gpumem

import (
	"sync"
	"syscall"

	abi "github.com/culvert-io/culvert/internal/abi/gpumem"
	"github.com/culvert-io/culvert/soft/kernel"
	"github.com/culvert-io/culvert/soft/kernel/p2p"
)

// An entry is memory that a process has locked.
type entry struct {
	m      *Module
	owner  *p2p.Process
	handle uint64
	va     uint64
	table  *p2p.PageTable

	mu      sync.Mutex
	refs    int // the lock, and its mappings; the last one puts the pages
	revoked bool
}

// lock pins memory for a process. As in the module the length is not rounded, and
// every error is EINVAL.
func (m *Module) lock(p *p2p.Process, addr, size uint64) (*entry, error) {
	start := addr &^ abi.GPU_BOUND_OFFSET
	if n := addr + size - start; n == 0 || addr+size < addr {
		return nil, syscall.EINVAL
	}
	e := &entry{m: m, owner: p, handle: m.number(), va: start, refs: 1}
	table, err := m.cfg.RM.GetPages(p.Task(), start, addr+size-start, e.lost)
	if err != nil {
		return nil, syscall.EINVAL
	}
	e.table = table
	m.add(e)
	m.cfg.Points.At("gpumem.locked", e.handle)
	return e, nil
}

// lost is the free callback. The resource manager revokes the mappings.
func (e *entry) lost(*p2p.Task, *p2p.PageTable) {
	e.m.cfg.Points.At("gpumem.callback", e.handle)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.revoked = true
}

// gone reports whether the owner freed the memory.
func (e *entry) gone() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.revoked
}

// hold takes a reference, unless there is none left.
func (e *entry) hold() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.refs == 0 {
		return false
	}
	e.refs++
	return true
}

// drop drops a reference. The last one puts the pages.
func (e *entry) drop() {
	e.mu.Lock()
	e.refs--
	last := e.refs == 0
	e.mu.Unlock()
	if !last {
		return
	}
	e.m.cfg.Points.At("gpumem.put", e.handle)
	_ = e.m.cfg.RM.PutPages(e.owner.Task(), e.va, e.table) // only this thread puts the table
}

// at returns the offset in the lock of n physical bytes, if they are contiguous in
// it.
func (e *entry) at(phys, n uint64) (off uint64, ok bool) {
	pages := e.table.Pages
	for i, p := range pages {
		if phys < p || phys-p >= abi.GPU_BOUND_SIZE {
			continue
		}
		off = phys - p
		for j := 1; uint64(j)*abi.GPU_BOUND_SIZE < off+n; j++ {
			if i+j == len(pages) || pages[i+j] != p+uint64(j)*abi.GPU_BOUND_SIZE {
				return 0, false
			}
		}
		return uint64(i)*abi.GPU_BOUND_SIZE + off, true
	}
	return 0, false
}

// mmap maps a part of the lock.
func (e *entry) mmap(off, n uint64, prot int) (kernel.Mapping, error) {
	if !e.hold() {
		return nil, syscall.EINVAL
	}
	v, err := e.m.cfg.RM.Mmap(e.table, off, n, prot)
	if err != nil {
		e.drop()
		return nil, err
	}
	return &mapping{VMA: v, e: e}, nil
}

// A mapping is locked memory in the process's address space. It keeps the memory
// locked.
type mapping struct {
	*p2p.VMA
	e    *entry
	once sync.Once
	err  error
}

var _ kernel.Mapping = (*mapping)(nil)

func (m *mapping) Unmap() error {
	m.once.Do(func() {
		if m.err = m.VMA.Unmap(); m.err == nil {
			m.e.drop()
		}
	})
	return m.err
}
