package gpumem

import (
	"fmt"
	"slices"
	"sync"

	abi "github.com/culvert-io/culvert/internal/abi/gpumem"
	"github.com/culvert-io/culvert/soft/kernel"
	"github.com/culvert-io/culvert/soft/kernel/p2p"
	"github.com/culvert-io/culvert/soft/pcie/syncpoint"
)

// A Config says how the module is loaded.
type Config struct {
	RM *p2p.RM
	// Points are the sync points, may be nil: gpumem.locked, gpumem.unlock,
	// gpumem.put, gpumem.callback.
	Points *syncpoint.Points
}

// A Module is gpumem, loaded.
type Module struct {
	cfg Config
	os  *kernel.OS

	mu      sync.Mutex
	entries []*entry // in the order of LOCK, of all files
	last    uint64
	exits   map[*p2p.Process]func() // cancel the exit hooks of processes with locks
}

// New loads the module: it adds a device node and a file to an operating system.
func New(o *kernel.OS, cfg Config) (*Module, error) {
	m := &Module{cfg: cfg, os: o, exits: map[*p2p.Process]func(){}}
	err := o.Register(abi.Path, func() (kernel.File, error) { return m.Open(cfg.RM.Self), nil })
	if err != nil {
		return nil, fmt.Errorf("gpumem: %w", err)
	}
	o.Mount(abi.ProcPath, kernel.Tree{".": m.list})
	return m, nil
}

// Close unloads the module and unlocks all memory.
func (m *Module) Close() {
	m.os.Unregister(abi.Path)
	m.unlockAll(func(*entry) bool { return true })
}

// unlockAll unlocks matching entries, in order.
func (m *Module) unlockAll(match func(*entry) bool) {
	m.mu.Lock()
	var gone []*entry
	m.entries = slices.DeleteFunc(m.entries, func(e *entry) bool {
		if match(e) {
			gone = append(gone, e)
			return true
		}
		return false
	})
	m.mu.Unlock()
	for _, e := range gone {
		e.drop()
	}
}

// Handles look like the module's, which are addresses of entries.
const (
	firstHandle = 0xffff_8880_0000_0000
	handleStep  = 64
)

// number returns a new handle.
func (m *Module) number() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last++
	return firstHandle + m.last*handleStep
}

// add adds an entry until it is unlocked or its process ends.
func (m *Module) add(e *entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.entries = append(m.entries, e)
	if m.exits[e.owner] == nil {
		m.exits[e.owner] = e.owner.OnExit(func() { m.exit(e.owner) })
	}
}

func (m *Module) exit(p *p2p.Process) {
	m.mu.Lock()
	delete(m.exits, p)
	m.mu.Unlock()
	m.unlockAll(func(e *entry) bool { return e.owner == p })
}

// find returns p's entry with a handle, or nil.
func (m *Module) find(p *p2p.Process, handle uint64) *entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.entries {
		if e.handle == handle && e.owner == p {
			return e
		}
	}
	return nil
}

// take is find and removes the entry.
func (m *Module) take(p *p2p.Process, handle uint64) *entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, e := range m.entries {
		if e.handle == handle && e.owner == p {
			m.entries = slices.Delete(m.entries, i, i+1)
			return e
		}
	}
	return nil
}

// locked returns p's entries, in order.
func (m *Module) locked(p *p2p.Process) []*entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(m.entries), func(e *entry) bool { return e.owner != p })
}
