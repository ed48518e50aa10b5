// Package rig is a small software machine for tests and examples of what stands
// on pinned GPU memory: a GPU and an engine below one switch, another engine
// elsewhere, the resource manager, and an operating system to load modules into.
package rig

import (
	"errors"
	"fmt"

	"github.com/culvert-io/culvert/gpu"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
	"github.com/culvert-io/culvert/soft/kernel"
	"github.com/culvert-io/culvert/soft/kernel/p2p"
	"github.com/culvert-io/culvert/soft/pcie"
	"github.com/culvert-io/culvert/soft/pcie/syncpoint"
)

// A Config describes the machine. The zero value has no IOMMU, and 16 MiB of
// GPU memory that can be mapped.
type Config struct {
	IOMMU     pcie.IOMMU
	Memory    uint64 // 0 means 16 MiB
	BAR1      uint64 // 0 means as much as the memory
	Heap      bool   // GPU memory for the race detector, which cannot be mapped
	Scatter   bool
	ForceBAR1 bool
	Fail      func(site string) bool
}

// A Rig is the machine.
type Rig struct {
	Points syncpoint.Points
	Fabric *pcie.Fabric
	GPUs   *softgpu.Driver
	GPU    gpu.Device
	RM     *p2p.RM
	OS     *kernel.OS

	Slot *pcie.Slot     // that the GPU is plugged into
	Port *pcie.Function // the GPU
	Near *pcie.Function // below the same switch
	Far  *pcie.Function // at another root port
}

// New builds the machine.
func New(cfg Config) (*Rig, error) {
	r := &Rig{OS: kernel.New(kernel.Tree{})}
	if cfg.Memory == 0 {
		cfg.Memory = 16 << 20
	}
	m := softgpu.H200()
	if m.Memory, m.BAR1 = cfg.Memory, cfg.Memory; cfg.BAR1 != 0 {
		m.BAR1 = cfg.BAR1
	}
	back := softgpu.Mapped
	if cfg.Heap {
		back = softgpu.Heap
	}
	var err error
	r.GPUs, err = softgpu.New(softgpu.Config{Models: []softgpu.Model{m}, Backing: back, Scatter: cfg.Scatter, Seed: 1})
	if err != nil {
		return nil, err
	}
	if r.GPU, err = r.GPUs.Open(0); err != nil {
		return nil, err
	}
	r.Fabric = pcie.New(pcie.Config{IOMMU: cfg.IOMMU, Points: &r.Points})
	if err := r.plug(); err != nil {
		return nil, err
	}
	r.RM, err = p2p.NewRM(p2p.Config{
		GPUs: r.GPUs, Ports: []*pcie.Function{r.Port}, Points: &r.Points, ForceBAR1: cfg.ForceBAR1, Fail: cfg.Fail,
	})
	return r, err
}

// plug puts the devices onto the fabric.
func (r *Rig) plug() error {
	host := r.Fabric.AddHostBridge(pcie.ForwardOwn)
	root, err := host.AddRootPort("0000:00:01.0")
	if err != nil {
		return err
	}
	sw, err := root.AddSwitch("0000:01:00.0")
	if err != nil {
		return err
	}
	if r.Slot, err = sw.AddSlot("0000:02:00.0"); err != nil {
		return err
	}
	if r.Port, err = r.Slot.AddFunction("0000:03:00.0"); err != nil {
		return err
	}
	next, err := sw.AddSlot("0000:02:01.0")
	if err != nil {
		return err
	}
	if r.Near, err = next.AddFunction("0000:04:00.0"); err != nil {
		return err
	}
	other, err := host.AddRootPort("0000:00:02.0")
	if err != nil {
		return err
	}
	r.Far, err = other.AddFunction("0000:05:00.0")
	return err
}

// Left says what is still in use that nobody should need any more, or nil.
func (r *Rig) Left() error {
	n, used, u := r.RM.Live(), r.RM.BAR1Used(0), r.Fabric.Usage()
	if n != 0 || used != 0 || u.Loans != 0 || u.Mappings != 0 || u.Windows != 1 || r.OS.OpenFiles() != 0 {
		return fmt.Errorf("left over: %d pins, %d bytes of BAR1, %d open files, %+v", n, used, r.OS.OpenFiles(), u)
	}
	return nil
}

// Close takes the machine apart. What is left over is an error.
func (r *Rig) Close() error {
	return errors.Join(r.Left(), r.RM.Close(), r.GPU.Close(), r.GPUs.Close())
}
