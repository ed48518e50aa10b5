package soft

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
	"github.com/culvert-io/culvert/soft/internal/cards"
	"github.com/culvert-io/culvert/soft/internal/topology"
	"github.com/culvert-io/culvert/soft/kernel"
	"github.com/culvert-io/culvert/soft/kernel/libnvm"
	"github.com/culvert-io/culvert/soft/kernel/nvfs/nvmerdma"
	"github.com/culvert-io/culvert/soft/kernel/nvfs/nvmestorage"
	"github.com/culvert-io/culvert/soft/kernel/nvrm"
	"github.com/culvert-io/culvert/soft/kernel/p2p"
	"github.com/culvert-io/culvert/soft/nvme"
	"github.com/culvert-io/culvert/soft/pcie"
)

// A Machine is a software machine: GPUs, a PCIe fabric, drives and an operating
// system with emulated kernel modules. It is safe for concurrent use.
type Machine struct {
	GPU *Driver

	//lint:ignore U1000 internal/dev reads it
	seam // the operating system: the files of the real one, and the modules' device nodes

	cfg      Config
	os       *kernel.OS
	rm       *nvrm.Manager
	topology *topology.Topology
	p2p      *p2p.RM
	libnvm   *libnvm.Module      // nil if not loaded
	storage  *nvmestorage.Driver // under nvidia-fs; nil if that is not loaded
	remote   *nvmerdma.Module    // the same for drives on other hosts
	peermem  bool                // nvidia-peermem is loaded with the first network adapter
	network  network

	mu     sync.Mutex
	drives []*nvme.Controller
	ends   []func() error // undo what was built, last first
}

// seam is embedded unexported, so that users do not see an internal type.
//
//lint:ignore U1000 internal/dev reads it
type seam = dev.Seam

// New builds a machine.
func New(cfg Config) (*Machine, error) {
	m := &Machine{cfg: cfg, os: kernel.New(os.DirFS("/"))}
	dev.With(m, dev.Of(m.os))
	if err := m.build(); err != nil {
		return nil, errors.Join(fmt.Errorf("software machine: %w", err), m.Close())
	}
	return m, nil
}

// Of returns the machine that a GPU driver belongs to, and whether that is a
// software machine.
func Of(d gpu.Driver) (*Machine, bool) {
	s, ok := d.(*Driver)
	if !ok {
		return nil, false
	}
	return s.m, true
}

func (m *Machine) build() error {
	g, err := softgpu.New(m.cfg.gpu())
	if err != nil {
		return err
	}
	m.onClose(g.Close)
	m.GPU = &Driver{Driver: g, m: m}
	if m.rm, err = nvrm.New(m.os, g, ""); err != nil {
		return err
	}
	m.onClose(m.rm.Close)
	if err := m.connect(g); err != nil {
		return fmt.Errorf("PCIe fabric: %w", err)
	}
	if m.p2p, err = p2p.NewRM(p2p.Config{
		GPUs: g, Ports: m.topology.GPUs, ForceBAR1: m.cfg.ForceBAR1, Points: m.cfg.Points, Fail: m.cfg.Fail,
	}); err != nil {
		return err
	}
	m.onClose(m.p2p.Close)
	if err := m.load(); err != nil {
		return err
	}
	for _, d := range m.cfg.Drives {
		if _, err := m.AddDrive(d); err != nil {
			return err
		}
	}
	if m.cfg.NICs != nil || m.cfg.Drive == remoteDrive {
		_, err := m.NICs()
		return err
	}
	return nil
}

// connect puts the GPUs onto a fabric.
func (m *Machine) connect(g *softgpu.Driver) error {
	infos, err := g.Devices()
	if err != nil {
		return err
	}
	var gpus []string
	for _, info := range infos {
		gpus = append(gpus, info.PCI)
	}
	fw := pcie.ForwardOwn
	if m.cfg.Isolated {
		fw = pcie.ForwardNone
	}
	m.topology, err = topology.New(pcie.Config{IOMMU: m.cfg.IOMMU, Points: m.cfg.Points}, fw, gpus)
	if err != nil {
		return err
	}
	m.showGPUs()
	return nil
}

// Shared reports whether other processes can use the memory of the GPUs.
func (m *Machine) Shared() bool { return m.GPU.Shared() }

// Sharable reports whether processes could share that memory: it is neither on the Go heap
// nor a PCI device's.
func (m *Machine) Sharable() bool {
	g, err := m.GPU.GPU(0)
	return err == nil && g.Mappable()
}

// NewShared returns a path in dir for [Config.Shared] that nothing has used, and removes
// files that processes which were killed have left there.
func NewShared(dir string) string { return cards.NewPath(dir) }

// RemoveShared removes the file of [Config.Shared], unless a process uses it.
func RemoveShared(path string) error { return cards.Remove(path) }

// Fabric returns the machine's PCIe fabric.
func (m *Machine) Fabric() *pcie.Fabric { return m.topology.Fabric }

// Port returns where GPU i is plugged in.
func (m *Machine) Port(i int) *pcie.Function { return m.topology.GPUs[i] }

// StoragePort returns where the drive under nvidia-fs is plugged in, or the network adapter
// that reaches it. It is nil before nvidia-fs has read or written a file.
func (m *Machine) StoragePort() *pcie.Function {
	switch {
	case m.storage == nil:
		return nil
	case m.remote.Serves(-1):
		return m.remote.Port()
	}
	return m.storage.Port()
}

// Kernel returns the operating system, to which modules can be added.
func (m *Machine) Kernel() *kernel.OS { return m.os }

// P2P returns nvidia_p2p, through which kernel modules pin GPU memory.
func (m *Machine) P2P() *p2p.RM { return m.p2p }

// Plug adds a device below the switch of GPU i: a drive, a network card, an engine.
// For GPU -1 the device gets a root port of its own.
func (m *Machine) Plug(i int) (*pcie.Function, error) {
	fn, err := m.topology.Plug(i)
	if err != nil {
		return nil, fmt.Errorf("software machine: %w", err)
	}
	return fn, nil
}

// InUse returns an error that lists what is in use of the machine, except GPU
// memory: pins, BAR1, DMA, device nodes and objects of the resource manager.
func (m *Machine) InUse() error {
	bar1 := uint64(0)
	for i := range m.topology.GPUs {
		bar1 += m.p2p.BAR1Used(i)
	}
	maps := 0
	if m.libnvm != nil {
		maps = m.libnvm.Maps()
	}
	pins, nodes, objects := m.p2p.Live(), m.os.OpenFiles(), m.rm.Objects()+m.rm.Mappings()
	u := m.Fabric().Usage()
	u.Windows -= len(m.topology.GPUs) + len(m.Drives())
	if pins+nodes+objects+maps != 0 || bar1 != 0 || u != (pcie.Usage{}) {
		return fmt.Errorf("software machine: in use: %d pins, %d bytes of BAR1, %d maps of libnvm, %d device nodes, %d objects of the resource manager, fabric: %+v",
			pins, bar1, maps, nodes, objects, u)
	}
	return nil
}

// onClose has end called when the machine is closed.
func (m *Machine) onClose(end func() error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ends = append(m.ends, end)
}

// Close shuts the machine down, as the end of the process does: pins end, and open
// device nodes return errors. A second call does nothing.
func (m *Machine) Close() error {
	m.mu.Lock()
	ends := m.ends
	m.ends = nil
	m.mu.Unlock()
	var errs []error
	for _, end := range slices.Backward(ends) {
		errs = append(errs, end())
	}
	return errors.Join(errs...)
}

// A Driver is the software GPUs as CUDA shows them: with IPC handles, which name
// objects of the resource manager.
type Driver struct {
	*softgpu.Driver
	m *Machine
}

// Open returns GPU i with its primary context retained.
func (d *Driver) Open(i int) (gpu.Device, error) {
	g, err := d.Driver.Open(i)
	if err != nil {
		return nil, err
	}
	dev := d.m.rm.Device(g)
	if card := g.(*softgpu.Device).GPU(); card.Peer() != "" {
		return &peerDevice{dev, card}, nil
	}
	return &dev, nil
}

// Close shuts the machine down.
func (d *Driver) Close() error { return d.m.Close() }
