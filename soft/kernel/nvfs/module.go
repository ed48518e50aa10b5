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

// A Config is how the module is loaded.
type Config struct {
	RM *p2p.RM
	// Callback has the module pin with free callbacks, so that memory can be
	// lost (use_legacy_p2p_allocation=1). Otherwise pins outlive the owner's
	// free.
	Callback bool
	// RWStats has transfers counted (rw_stats_enabled=1).
	RWStats bool
	// Storage are the storage modules that are loaded, in the order in which
	// they are looked for. The first that serves a file gets it.
	Storage []Storage
	// Points, if any, are passed on the way; see the package's comment.
	Points *syncpoint.Points
}

// A Module is nvidia-fs, loaded.
type Module struct {
	cfg   Config
	os    *kernel.OS
	ops   Ops
	stats stats
	// hidesBlocks says whether a file's file system keeps the number of its blocks
	// to itself.
	hidesBlocks func(fd int, dev uint64) bool

	lastID atomic.Uint64
	async  sync.WaitGroup
	leave  func() // cancels exit

	mu         sync.Mutex
	users      int // opens and pinned mgroups
	registered []Storage
	views      []*view            // that are mapped
	groups     map[uint64]*mgroup // by base index
}

// New loads the module: it adds its nodes and its files to an operating system.
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

// Close unloads the module when asynchronous transfers have ended. Open files
// stay.
func (m *Module) Close() {
	for i := range abi.MaxDevices {
		m.os.Unregister(abi.Path(i))
	}
	m.async.Wait()
	m.leave()
}

// exit is the end of the process: the kernel unmaps what is still mapped, and does
// not wait for transfers.
func (m *Module) exit() {
	m.mu.Lock()
	left := slices.Clone(m.views)
	m.mu.Unlock()
	for _, v := range left {
		_ = v.Unmap() // there is nobody left to tell
	}
}

// Groups is the number of mgroups that live.
func (m *Module) Groups() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.groups)
}

func (m *Module) at(point string, g *mgroup) { m.cfg.Points.At(point, g.id) }

// use counts a user in: the first has the storage modules register.
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

// unuse counts a user out: with the last the storage modules go.
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

// storage is the registered module that serves an open file, or nil.
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
