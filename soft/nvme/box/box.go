// Package box is a small software machine around NVMe drives: a PCIe fabric
// with one switch, below which GPUs and drives are neighbours, one more drive's
// place elsewhere, and nvidia_p2p between them.
package box

import (
	"errors"
	"fmt"

	softgpu "github.com/culvert-io/culvert/soft/gpu"
	"github.com/culvert-io/culvert/soft/kernel/p2p"
	"github.com/culvert-io/culvert/soft/nvme"
	"github.com/culvert-io/culvert/soft/pcie"
	"github.com/culvert-io/culvert/soft/pcie/syncpoint"
)

// A Config says what is in the box.
type Config struct {
	GPUs   *softgpu.Driver // may be nil
	Drives []nvme.Config   // below the GPUs' switch
	Far    []nvme.Config   // below root ports of their own, through which no peer is reached
	IOMMU  pcie.IOMMU
	Points *syncpoint.Points // of the fabric
	// Fail, if any, makes allocations of nvidia_p2p fail.
	Fail func(site string) bool
}

// A Box is the machine.
type Box struct {
	Fabric *pcie.Fabric
	RM     *p2p.RM            // nil without GPUs
	GPUs   []*pcie.Function   // where the GPUs are plugged in
	Drives []*nvme.Controller // those below the switch, then the far ones
}

// New builds the machine.
func New(cfg Config) (b *Box, err error) {
	b = &Box{Fabric: pcie.New(pcie.Config{IOMMU: cfg.IOMMU, Points: cfg.Points})}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	root, err := b.Fabric.AddHostBridge(pcie.ForwardOwn).AddRootPort("root0")
	if err != nil {
		return b, err
	}
	sw, err := root.AddSwitch("switch0")
	if err != nil {
		return b, err
	}
	near := func(name string) (*pcie.Slot, error) { return sw.AddSlot("slot of " + name) }
	if err := b.addGPUs(cfg, near); err != nil {
		return b, err
	}
	if err := b.addDrives(0x80, cfg.Drives, near); err != nil {
		return b, err
	}
	far := func(name string) (*pcie.Slot, error) {
		return b.Fabric.AddHostBridge(pcie.ForwardNone).AddRootPort("port of " + name)
	}
	return b, b.addDrives(0xc0, cfg.Far, far)
}

func (b *Box) addGPUs(cfg Config, slot func(string) (*pcie.Slot, error)) error {
	if cfg.GPUs == nil {
		return nil
	}
	infos, err := cfg.GPUs.Devices()
	if err != nil {
		return err
	}
	for _, info := range infos {
		fn, err := plug(info.PCI, slot)
		if err != nil {
			return err
		}
		b.GPUs = append(b.GPUs, fn)
	}
	b.RM, err = p2p.NewRM(p2p.Config{GPUs: cfg.GPUs, Ports: b.GPUs, Fail: cfg.Fail})
	return err
}

func (b *Box) addDrives(bus int, drives []nvme.Config, slot func(string) (*pcie.Slot, error)) error {
	for i, cfg := range drives {
		fn, err := plug(fmt.Sprintf("0000:%02x:00.0", bus+i), slot)
		if err != nil {
			return err
		}
		c, err := nvme.New(fn, cfg)
		if err != nil {
			return err
		}
		b.Drives = append(b.Drives, c)
	}
	return nil
}

func plug(name string, slot func(string) (*pcie.Slot, error)) (*pcie.Function, error) {
	s, err := slot(name)
	if err != nil {
		return nil, err
	}
	return s.AddFunction(name)
}

// Transport is the way to a drive.
func (b *Box) Transport(drive int) *nvme.Transport { return b.Drives[drive].Transport(b.RM, nil) }

// Close takes the machine apart. Media stay open.
func (b *Box) Close() error {
	var errs []error
	for _, d := range b.Drives {
		errs = append(errs, d.Close())
	}
	if b.RM != nil {
		errs = append(errs, b.RM.Close())
	}
	return errors.Join(errs...)
}
