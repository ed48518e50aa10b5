package soft

import (
	"fmt"
	"sync"

	softgpu "github.com/culvert-io/culvert/soft/gpu"
	"github.com/culvert-io/culvert/soft/pcie"
)

// A board is the fabric that the GPUs are plugged into: each below a switch of
// its own, at a root port of its own, with room for other devices beside it.
type board struct {
	fabric *pcie.Fabric
	ports  []*pcie.Function // the GPUs

	mu    sync.Mutex
	sites []site
}

// A site is a GPU's neighbourhood.
type site struct {
	sw    *pcie.Switch
	bus   int // the GPU's
	taken int // slots of the switch
}

// slots is how many devices there are room for below a switch: the bus numbers
// between two GPUs, less those of the bridges.
const slots = 12

func newBoard(g *softgpu.Driver) (*board, error) {
	b := &board{fabric: pcie.New(pcie.Config{})}
	host := b.fabric.AddHostBridge(pcie.ForwardOwn)
	infos, err := g.Devices()
	if err != nil {
		return nil, err
	}
	for i, info := range infos {
		if err := b.addSite(host, i, info.PCI); err != nil {
			return nil, err
		}
		port, err := b.plug(i)
		if err != nil {
			return nil, err
		}
		b.ports = append(b.ports, port)
	}
	return b, nil
}

// addSite puts a switch above the place of GPU i.
func (b *board) addSite(host *pcie.HostBridge, i int, pci string) error {
	var bus int
	if _, err := fmt.Sscanf(pci, "0000:%x:00.0", &bus); err != nil {
		return fmt.Errorf("PCI address %q: %w", pci, err)
	}
	root, err := host.AddRootPort(fmt.Sprintf("0000:00:%02x.0", i+1))
	if err != nil {
		return err
	}
	sw, err := root.AddSwitch(fmt.Sprintf("0000:%02x:00.0", bus-2))
	if err != nil {
		return err
	}
	b.sites = append(b.sites, site{sw: sw, bus: bus})
	return nil
}

// plug puts a device below the switch of GPU i. The first is the GPU itself.
func (b *board) plug(i int) (*pcie.Function, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i < 0 || i >= len(b.sites) {
		return nil, fmt.Errorf("software machine: no GPU %d to plug a device in beside: there are %d", i, len(b.sites))
	}
	s := &b.sites[i]
	if s.taken == slots {
		return nil, fmt.Errorf("software machine: all %d slots of the switch above GPU %d are taken", slots, i)
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
