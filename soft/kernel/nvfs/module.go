package nvfs

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	abi "github.com/culvert-io/culvert/internal/abi/nvfs"
	"github.com/culvert-io/culvert/soft/kernel"
	"github.com/culvert-io/culvert/soft/kernel/p2p"
	"github.com/culvert-io/culvert/soft/pcie/syncpoint"
)

// A Config says how the module is loaded.
type Config struct {
	RM *p2p.RM
	// Callback pins with free callbacks, so that freeing the memory revokes the pin
	// (use_legacy_p2p_allocation=1). Otherwise pins outlive the free.
	Callback bool
	// RWStats counts transfers (rw_stats_enabled=1).
	RWStats bool
	// Storage lists the loaded storage modules. The first that serves a file gets its
	// requests.
	Storage []Storage
	// Points are the sync points; may be nil.
	Points *syncpoint.Points
}

// A Module is nvidia-fs, loaded.
type Module struct {
	cfg   Config
	os    *kernel.OS
	ops   Ops
	stats stats
	// hidesBlocks tells whether a file system hides the number of a file's blocks.
	hidesBlocks func(fd int, dev uint64) bool

	lastID atomic.Uint64
	async  sync.WaitGroup
	leave  func() // cancels exit

	mu         sync.Mutex
	users      int // open files and pinned mgroups
	registered []Storage
	views      []*view            // that are mapped
	groups     map[uint64]*mgroup // by base index
}

// New loads the module: it adds device nodes and files to an operating system.
func New(o *kernel.OS, cfg Config) (*Module, error) {
	m := &Module{cfg: cfg, os: o, groups: map[uint64]*mgroup{}, hidesBlocks: onXFS}
	m.ops.m = m
	for i := range abi.MaxDevices {
		err := o.Register(abi.Path(i), func() (kernel.File, error) { return m.open(), nil })
		if err != nil {
			for j := range i {
				o.Unregister(abi.Path(j))
			}
			return nil, fmt.Errorf("nvidia-fs: %w", err)
		}
	}
	o.Mount(abi.ProcDir, m.proc())
	m.leave = cfg.RM.Self.OnExit(m.exit)
	return m, nil
}

// Close unloads the module when asynchronous transfers have ended. Open files stay
// open.
func (m *Module) Close() {
	for i := range abi.MaxDevices {
		m.os.Unregister(abi.Path(i))
	}
	m.async.Wait()
	m.leave()
}

// exit is the end of the process: the kernel unmaps all views and does not wait for
// transfers.
func (m *Module) exit() {
	m.mu.Lock()
	left := slices.Clone(m.views)
	m.mu.Unlock()
	for _, v := range left {
		_ = v.Unmap() // no one to report to
	}
}

// Groups returns the number of mgroups.
func (m *Module) Groups() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.groups)
}

func (m *Module) at(point string, g *mgroup) { m.cfg.Points.At(point, g.id) }

// use counts a user in. The first registers the storage modules.
func (m *Module) use() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.users++; m.users > 1 {
		return
	}
	for _, s := range m.cfg.Storage {
		register, ok := s.(Registrar)
		if _, both := s.(Unregistrar); ok && both && register.Register(&m.ops) == nil {
			m.registered = append(m.registered, s)
		}
	}
}

// unuse counts a user out. The last unregisters the storage modules.
func (m *Module) unuse() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.users--; m.users > 0 {
		return
	}
	for _, s := range m.registered {
		s.(Unregistrar).Unregister()
	}
	m.registered = nil
}

// superBlock returns the device number in the super block of a file, which some file
// systems do not show to processes.
func (m *Module) superBlock(dev uint64) uint64 {
	for _, s := range m.cfg.Storage {
		if n, ok := s.(SuperBlocker); ok {
			return n.SuperBlock(dev)
		}
	}
	return dev
}

// storage returns the registered module that serves an open file, or nil.
func (m *Module) storage(fd int) Storage {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.registered {
		if s.Serves(fd) {
			return s
		}
	}
	return nil
}
