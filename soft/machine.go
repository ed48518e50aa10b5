package soft

import (
	"errors"
	"fmt"
	"os"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
	"github.com/culvert-io/culvert/soft/kernel"
	"github.com/culvert-io/culvert/soft/kernel/nvrm"
)

// A Machine is the devices of a software machine, ready to be opened.
type Machine struct {
	GPU *Driver
	OS  dev.OS
}

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
	return &Machine{GPU: &Driver{g, rm}, OS: k}, nil
}

// A Driver is the software GPUs as CUDA would show them: with IPC handles, which
// name objects of the resource manager.
type Driver struct {
	*softgpu.Driver
	rm *nvrm.Manager
}

// Open returns GPU i with its primary context retained.
func (d *Driver) Open(i int) (gpu.Device, error) {
	g, err := d.Driver.Open(i)
	if err != nil {
		return nil, err
	}
	dev := d.rm.Device(g)
	return &dev, nil
}

// Close takes the machine down.
func (d *Driver) Close() error { return errors.Join(d.rm.Close(), d.Driver.Close()) }
