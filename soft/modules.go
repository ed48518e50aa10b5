package soft

import (
	"errors"

	softgpu "github.com/culvert-io/culvert/soft/gpu"
	"github.com/culvert-io/culvert/soft/kernel"
	"github.com/culvert-io/culvert/soft/kernel/gdrdrv"
	"github.com/culvert-io/culvert/soft/kernel/gpumem"
	"github.com/culvert-io/culvert/soft/kernel/nvfs"
	"github.com/culvert-io/culvert/soft/kernel/nvfs/nvme"
	"github.com/culvert-io/culvert/soft/kernel/p2p"
	"github.com/culvert-io/culvert/soft/pcie"
)

// modules are the kernel modules that pin GPU memory, and what they stand on.
type modules struct {
	p2p    *p2p.RM
	gdrdrv *gdrdrv.Module
	gpumem *gpumem.Module
	nvfs   *nvfs.Module // nil where there is none
	nvme   *nvme.Driver // the storage module under nvfs
}

// load loads the modules. What a module needs much memory for, it makes when
// memory is pinned for the first time. The drive under nvidia-fs is plugged in
// beside the first GPU when a file is first read or written. GPUs with the memory
// of a real device have no nvidia-fs: they are there for what the real kernel does
// with such memory, and a model above it would hide that.
func load(k *kernel.OS, g *softgpu.Driver, b *board, cfg Config) (*modules, error) {
	rm, err := p2p.NewRM(p2p.Config{GPUs: g, Ports: b.ports})
	if err != nil {
		return nil, err
	}
	m := &modules{p2p: rm}
	if m.gdrdrv, err = gdrdrv.New(k, gdrdrv.Config{RM: rm}); err != nil {
		return nil, errors.Join(err, rm.Close())
	}
	if m.gpumem, err = gpumem.New(k, gpumem.Config{RM: rm}); err != nil {
		m.gdrdrv.Close()
		return nil, errors.Join(err, rm.Close())
	}
	m.nvme = nvme.New(func() (*pcie.Function, error) { return b.plug(0) }, cfg.Heap)
	if cfg.Peer != "" {
		return m, nil
	}
	if m.nvfs, err = nvfs.New(k, nvfs.Config{RM: rm, Storage: []nvfs.Storage{m.nvme, nvme.RDMA{}}}); err != nil {
		m.gpumem.Close()
		m.gdrdrv.Close()
		return nil, errors.Join(err, rm.Close())
	}
	return m, nil
}

// unload ends what the process has pinned, then the modules.
func (m *modules) unload() error {
	if m.nvfs != nil {
		m.nvfs.Exit()
	}
	m.p2p.Self.Exit()
	if m.nvfs != nil {
		m.nvfs.Close()
	}
	m.nvme.Close()
	m.gpumem.Close()
	m.gdrdrv.Close()
	return m.p2p.Close()
}
