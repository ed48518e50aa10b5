package soft

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
	"github.com/culvert-io/culvert/soft/kernel"
	"github.com/culvert-io/culvert/soft/kernel/nvrm"
	"github.com/culvert-io/culvert/soft/pcie"
)

// A Machine is the devices of a software machine, ready to be opened.
type Machine struct {
	GPU *Driver

	seam // the operating system, with the emulated modules' device nodes
}

// seam is embedded unexported, so that users do not see an internal type.
type seam = dev.Seam

// New builds a machine. Its operating system shows the files of the real one,
// with the software machine's nodes and entries laid over them.
func New(cfg Config) (*Machine, error) {
	g, err := softgpu.New(cfg.gpu())
	if err != nil {
		return nil, fmt.Errorf("software GPU: %w", err)
	}
	k := kernel.New(os.DirFS("/"))
	rm, err := nvrm.New(k, g, "")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("software resource manager: %w", err), g.Close())
	}
	b, err := newBoard(g)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("software PCIe fabric: %w", err), rm.Close(), g.Close())
	}
	m, err := load(k, g, b, cfg)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("software kernel: %w", err), rm.Close(), g.Close())
	}
	d := &Driver{Driver: g, rm: rm, board: b, modules: m}
	// The modules hold memory of the resource manager, and that holds the GPUs'.
	d.close = sync.OnceValue(func() error { return errors.Join(m.unload(), rm.Close(), g.Close()) })
	return dev.With(&Machine{GPU: d}, k), nil
}

// A Driver is the software GPUs as CUDA would show them: with IPC handles, which
// name objects of the resource manager.
type Driver struct {
	*softgpu.Driver
	rm      *nvrm.Manager
	board   *board
	modules *modules
	close   func() error
}

// Open returns GPU i with its primary context retained.
func (d *Driver) Open(i int) (gpu.Device, error) {
	g, err := d.Driver.Open(i)
	if err != nil {
		return nil, err
	}
	dev := d.rm.Device(g)
	if card := g.(*softgpu.Device).GPU(); card.Peer() != "" {
		return &peerDevice{dev, card}, nil
	}
	return &dev, nil
}

// Beside plugs a device of somebody else in below the switch of GPU i: a drive, a
// network card, an engine.
func (d *Driver) Beside(i int) (*pcie.Function, error) { return d.board.plug(i) }

// Drive is where the drive under nvidia-fs is plugged in, beside the first GPU: nil
// before a file was first read or written by it.
func (d *Driver) Drive() *pcie.Function { return d.modules.nvme.Port() }

// Close takes the machine down, as if the process had ended: nodes that are
// still open have nothing behind them any more. A second call does nothing and
// answers as the first.
func (d *Driver) Close() error { return d.close() }
