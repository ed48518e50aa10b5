package gdrdrv

import (
	"fmt"
	"path"
	"strings"
	"sync/atomic"

	abi "github.com/culvert-io/culvert/internal/abi/gdrdrv"
	"github.com/culvert-io/culvert/soft/kernel"
	"github.com/culvert-io/culvert/soft/kernel/p2p"
	"github.com/culvert-io/culvert/soft/pcie/syncpoint"
)

// A Config says how the module is loaded.
type Config struct {
	RM *p2p.RM
	// Callback pins with free callbacks, so that freeing the memory revokes the pin
	// (use_persistent_mapping=0). Otherwise pins outlive the free.
	Callback bool
	// Points are the sync points, may be nil: gdrdrv.pinned, gdrdrv.unpin,
	// gdrdrv.zapped, gdrdrv.callback, gdrdrv.release.
	Points *syncpoint.Points
}

// A Module is gdrdrv, loaded.
type Module struct {
	cfg    Config
	os     *kernel.OS
	pins   atomic.Int64
	lastID atomic.Uint64
}

// New loads the module: it adds a device node and files to an operating system.
func New(o *kernel.OS, cfg Config) (*Module, error) {
	m := &Module{cfg: cfg, os: o}
	err := o.Register(abi.Path, func() (kernel.File, error) { return m.Open(cfg.RM.Self), nil })
	if err != nil {
		return nil, fmt.Errorf("gdrdrv: %w", err)
	}
	dir, name := path.Split(abi.ParamsPath)
	o.Mount(strings.TrimSuffix(dir, "/"), kernel.Tree{name: m.params})
	return m, nil
}

// Close unloads the module. Open files stay open.
func (m *Module) Close() { m.os.Unregister(abi.Path) }

// Pins returns the number of pinned buffers.
func (m *Module) Pins() int { return int(m.pins.Load()) }

// params returns /proc/driver/gdrdrv/params.
func (m *Module) params() []byte {
	persistent := "yes"
	if m.cfg.Callback {
		persistent = "no"
	}
	return fmt.Appendf(nil, "Version: %d.%d\nBuilt for NVIDIA driver flavor: opensource\nUse persistent mapping: %s\ndbg_enabled: 0\ninfo_enabled: 0\n",
		abi.GDRDRV_VERSION>>16, abi.GDRDRV_VERSION&0xffff, persistent)
}
