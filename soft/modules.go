package soft

import (
	"slices"

	"github.com/culvert-io/culvert/soft/kernel/gdrdrv"
	"github.com/culvert-io/culvert/soft/kernel/gpumem"
	"github.com/culvert-io/culvert/soft/kernel/libnvm"
	"github.com/culvert-io/culvert/soft/kernel/nvfs"
	"github.com/culvert-io/culvert/soft/kernel/nvfs/nvmestorage"
)

// Modules returns the names of the emulated kernel modules, for Config.Without.
func Modules() []string { return []string{"gdrdrv", "gpumem", "libnvm", "nvidia-peermem", "nvidia-fs"} }

// load loads the modules. A module allocates large tables when memory is first
// pinned, and the drive under nvidia-fs is plugged in beside the first GPU when a
// file is first read or written.
func (m *Machine) load() error {
	if err := m.cfg.checkModules(); err != nil {
		return err
	}
	for _, name := range Modules() {
		if slices.Contains(m.cfg.Without, name) {
			continue
		}
		if err := m.loadModule(name); err != nil {
			return err
		}
	}
	// The process ends, with its pins, before the modules are unloaded.
	m.onClose(func() error { m.p2p.Self.Exit(); return nil })
	return nil
}

func (m *Machine) loadModule(name string) error {
	switch name {
	case "gdrdrv":
		mod, err := gdrdrv.New(m.os, gdrdrv.Config{RM: m.p2p, Callback: m.cfg.Callback, Points: m.cfg.Points})
		return m.loaded(mod, err)
	case "gpumem":
		mod, err := gpumem.New(m.os, gpumem.Config{RM: m.p2p, Points: m.cfg.Points})
		return m.loaded(mod, err)
	case "libnvm":
		var err error
		m.libnvm, err = libnvm.New(m.os, libnvm.Config{RM: m.p2p, Points: m.cfg.Points, First: m.firstDrive})
		return m.loaded(m.libnvm, err)
	case "nvidia-peermem":
		m.peermem = true // loaded with the first network adapter
		return nil
	}
	if m.cfg.Peer != "" {
		return nil // such memory is for the real kernel's direct I/O
	}
	slot, err := m.topology.Reserve(0)
	if err != nil {
		return err
	}
	m.showPCI(slot, driveLink)
	m.storage = nvmestorage.New(slot.Plug, m.cfg.Heap)
	m.storage.Lie(m.cfg.Liar)
	if err := m.stack(slot.PCI); err != nil {
		return err
	}
	_ = m.loaded(m.storage, nil)
	if err := m.loadRemote(); err != nil {
		return err
	}
	storage := []nvfs.Storage{m.storage, m.remote}
	if m.remote.Serves(-1) {
		slices.Reverse(storage) // the first that serves a file gets its requests
	}
	mod, err := nvfs.New(m.os, nvfs.Config{RM: m.p2p, Callback: m.cfg.Callback, Points: m.cfg.Points, Storage: storage})
	return m.loaded(mod, err)
}

// stack puts the layers of the configuration above the drive under nvidia-fs, which has a
// PCI address.
func (m *Machine) stack(pci string) error {
	layers, hidden, err := m.cfg.layers()
	if err != nil {
		return err
	}
	m.storage.Below(layers)
	if hidden {
		m.storage.Hide(m.os, pci)
	} else {
		m.storage.Show(m.os, pci)
	}
	return nil
}

// loaded has a module unloaded when the machine is closed.
func (m *Machine) loaded(mod interface{ Close() }, err error) error {
	if err == nil {
		m.onClose(func() error { mod.Close(); return nil })
	}
	return err
}
