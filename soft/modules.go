package soft

import (
	"errors"

	softgpu "github.com/culvert-io/culvert/soft/gpu"
	"github.com/culvert-io/culvert/soft/kernel"
	"github.com/culvert-io/culvert/soft/kernel/gdrdrv"
	"github.com/culvert-io/culvert/soft/kernel/gpumem"
	"github.com/culvert-io/culvert/soft/kernel/p2p"
	"github.com/culvert-io/culvert/soft/pcie"
)

// modules are the kernel modules that pin GPU memory, and what they stand on.
type modules struct {
	p2p    *p2p.RM
	gdrdrv *gdrdrv.Module
	gpumem *gpumem.Module
}

// load loads the modules. What a module needs much memory for, it makes when
// memory is pinned for the first time.
func load(k *kernel.OS, g *softgpu.Driver, ports []*pcie.Function) (*modules, error) {
	rm, err := p2p.NewRM(p2p.Config{GPUs: g, Ports: ports})
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
	return m, nil
}

// unload ends what the process has pinned, then the modules.
func (m *modules) unload() error {
	m.p2p.Self.Exit()
	m.gpumem.Close()
	m.gdrdrv.Close()
	return m.p2p.Close()
}
