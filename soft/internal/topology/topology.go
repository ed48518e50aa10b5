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
	Places []*Place         // of the GPUs

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
		place, err := t.Reserve(i)
		if err != nil {
			return nil, err
		}
		fn, err := place.Plug()
		if err != nil {
			return nil, err
		}
		t.GPUs, t.Places = append(t.GPUs, fn), append(t.Places, place)
	}
	return t, nil
}

// addSite adds the switch above GPU i.
func (t *Topology) addSite(i int, pci string) error {
	var bus int
	if _, err := fmt.Sscanf(pci, "0000:%x:00.0", &bus); err != nil {
		return fmt.Errorf("PCI address %q: %w", pci, err)
	}
	root, err := t.host.AddRootPort(rootPort(i))
	if err != nil {
		return err
	}
	sw, err := root.AddSwitch(upstream(bus))
	if err != nil {
		return err
	}
	t.sites = append(t.sites, site{sw: sw, bus: bus})
	return nil
}

// Plug adds a device below the switch of a GPU. For GPU -1 it adds the device at a
// root port of its own.
func (t *Topology) Plug(gpu int) (*pcie.Function, error) {
	if gpu == -1 {
		t.mu.Lock()
		defer t.mu.Unlock()
		return t.plugAlone()
	}
	place, err := t.Reserve(gpu)
	if err != nil {
		return nil, err
	}
	return place.Plug()
}

// A Place is a slot of a switch that is kept for one device.
type Place struct {
	Above []string // PCI addresses from the root port to the slot
	PCI   string   // of the device
	sw    *pcie.Switch
}

// Reserve keeps a slot below the switch of a GPU for a device that is plugged in later.
func (t *Topology) Reserve(gpu int) (*Place, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if gpu < 0 || gpu >= len(t.sites) {
		return nil, fmt.Errorf("plug a device in beside GPU %d: there are %d GPUs", gpu, len(t.sites))
	}
	s := &t.sites[gpu]
	if s.taken == Slots {
		return nil, fmt.Errorf("plug a device in beside GPU %d: all %d slots are taken", gpu, Slots)
	}
	p := s.place(gpu)
	s.taken++
	return p, nil
}

// place is the first slot that is not taken.
func (s *site) place(gpu int) *Place {
	slot := fmt.Sprintf("0000:%02x:%02x.0", s.bus-1, s.taken)
	return &Place{[]string{rootPort(gpu), upstream(s.bus), slot}, fmt.Sprintf("0000:%02x:00.0", s.bus+s.taken), s.sw}
}

func rootPort(gpu int) string { return fmt.Sprintf("0000:00:%02x.0", gpu+1) }

func upstream(bus int) string { return fmt.Sprintf("0000:%02x:00.0", bus-2) }

// Plug adds the device.
func (p *Place) Plug() (*pcie.Function, error) {
	slot, err := p.sw.AddSlot(p.Above[len(p.Above)-1])
	if err != nil {
		return nil, err
	}
	return slot.AddFunction(p.PCI)
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
