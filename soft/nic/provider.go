package nic

import (
	"fmt"
	"syscall"

	"github.com/culvert-io/culvert/rdma"
)

// A Provider is the adapters of a machine. All returns them; it may plug them in when it
// is first called.
type Provider struct {
	All func() ([]*NIC, error)
}

// Name implements rdma.Provider.
func (p *Provider) Name() string { return Name }

// Devices implements rdma.Provider.
func (p *Provider) Devices() (list []rdma.DeviceInfo, err error) {
	nics, err := p.All()
	for _, n := range nics {
		list = append(list, n.Info())
	}
	return list, err
}

// Open implements rdma.Provider.
func (p *Provider) Open(name string) (rdma.Device, error) {
	nics, err := p.All()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, n := range nics {
		if name == "" || name == n.cfg.Name {
			return n.Open()
		}
		names = append(names, n.cfg.Name)
	}
	return nil, fmt.Errorf("software machine: no network adapter %q (adapters: %q): %w", name, names, syscall.ENODEV)
}

// Close implements rdma.Provider. The adapters stay in the machine.
func (p *Provider) Close() error { return nil }
