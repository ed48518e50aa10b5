// Package topology builds the PCIe fabric of a software machine.
package topology

import (
	"fmt"
	"sync"

	"github.com/culvert-io/culvert/soft/pcie"
)

// A Topology is a fabric with one host bridge. Each GPU is below a switch of its
// own, at a root port of its own, with free slots beside it. It is safe for
// concurrent use.
type Topology struct {
	Fabric *pcie.Fabric
	GPUs   []*pcie.Function // by index

	host  *pcie.HostBridge
	mu    sync.Mutex
	sites []site // by GPU
	alone int    // devices at a root port of their own
}

// A site is a GPU and what is plugged in beside it.
type site struct {
	sw    *pcie.Switch
	bus   int // the GPU's
	taken int // slots of the switch
}

// Slots is the number of devices below a switch, the GPU included: the bus numbers
// between two GPUs, less those of the bridges.
const Slots = 12

// New builds a fabric with GPUs at the given PCI addresses.
func New(cfg pcie.Config, fw pcie.Forwarding, gpus []string) (*Topology, error) {
	t := &Topology{Fabric: pcie.New(cfg)}
	t.host = t.Fabric.AddHostBridge(fw)
	for i, pci := range gpus {
		if err := t.addSite(i, pci); err != nil {
			return nil, err
		}
		fn, err := t.Plug(i)
		if err != nil {
			return nil, err
		}
		t.GPUs = append(t.GPUs, fn)
	}
	return t, nil
}

// addSite adds the switch above GPU i.
func (t *Topology) addSite(i int, pci string) error {
	var bus int
	if _, err := fmt.Sscanf(pci, "0000:%x:00.0", &bus); err != nil {
		return fmt.Errorf("PCI address %q: %w", pci, err)
	}
	root, err := t.host.AddRootPort(fmt.Sprintf("0000:00:%02x.0", i+1))
	if err != nil {
		return err
	}
	sw, err := root.AddSwitch(fmt.Sprintf("0000:%02x:00.0", bus-2))
	if err != nil {
		return err
	}
	t.sites = append(t.sites, site{sw: sw, bus: bus})
	return nil
}

// Plug adds a device below the switch of a GPU. For GPU -1 it adds the device at a
// root port of its own.
func (t *Topology) Plug(gpu int) (*pcie.Function, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case gpu == -1:
		return t.plugAlone()
	case gpu < 0 || gpu >= len(t.sites):
		return nil, fmt.Errorf("plug a device in beside GPU %d: there are %d GPUs", gpu, len(t.sites))
	}
	s := &t.sites[gpu]
	if s.taken == Slots {
		return nil, fmt.Errorf("plug a device in beside GPU %d: all %d slots are taken", gpu, Slots)
	}
	slot, err := s.sw.AddSlot(fmt.Sprintf("0000:%02x:%02x.0", s.bus-1, s.taken))
	if err != nil {
		return nil, err
	}
	fn, err := slot.AddFunction(fmt.Sprintf("0000:%02x:00.0", s.bus+s.taken))
	if err != nil {
		return nil, err
	}
	s.taken++
	return fn, nil
}

// plugAlone uses PCI domain 1: sixteen GPUs leave no bus numbers in domain 0.
func (t *Topology) plugAlone() (*pcie.Function, error) {
	t.alone++
	root, err := t.host.AddRootPort(fmt.Sprintf("0001:00:%02x.0", t.alone))
	if err != nil {
		return nil, err
	}
	return root.AddFunction(fmt.Sprintf("0001:%02x:00.0", t.alone))
}
