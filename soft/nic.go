package soft

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"sync"

	"github.com/culvert-io/culvert/rdma"
	"github.com/culvert-io/culvert/soft/kernel/peermem"
	"github.com/culvert-io/culvert/soft/nic"
)

// A NIC describes a network adapter of a machine.
type NIC struct {
	Name string // "" means soft0 for the first, soft1 for the second …
	GPU  int    // whose switch the adapter is below; -1 for a root port of its own
	// NoDMABuf: the adapter's driver cannot import a dma-buf.
	NoDMABuf bool
	// Listen is the address of the port; "" is a loopback address. Others need a token.
	Listen string
	Token  []byte
}

// network is the RDMA half of a machine. It is built when it is first used.
type network struct {
	once sync.Once
	nics []*nic.NIC
	err  error
}

// RDMA returns the machine's network adapters as a provider of verbs.
func (m *Machine) RDMA() rdma.Provider { return &nic.Provider{All: m.NICs} }

// NICs returns the machine's network adapters. The first call plugs them in and loads
// nvidia-peermem, unless Config.Without has it.
func (m *Machine) NICs() ([]*nic.NIC, error) {
	n := &m.network
	n.once.Do(func() {
		if n.nics, n.err = m.addNICs(); n.err != nil {
			n.err = fmt.Errorf("software machine: network adapters: %w", n.err)
		}
	})
	return n.nics, n.err
}

func (m *Machine) addNICs() ([]*nic.NIC, error) {
	core := peermem.New(peermem.Config{Pin: nic.Pin, Points: m.cfg.Points})
	if m.peermem {
		if err := m.loadPeermem(core); err != nil {
			return nil, err
		}
	}
	var nics []*nic.NIC
	for i, c := range m.nics() {
		x, err := m.addNIC(i, c, core)
		if err != nil {
			return nil, err
		}
		nics = append(nics, x)
	}
	return nics, nil
}

// nics describes the adapters.
func (m *Machine) nics() []NIC {
	if m.cfg.NICs == nil {
		return []NIC{{}}
	}
	return m.cfg.NICs
}

func nicName(i int, c NIC) string { return cmp.Or(c.Name, fmt.Sprintf("soft%d", i)) }

func (m *Machine) loadPeermem(core *peermem.Core) error {
	mod, err := peermem.NewNVIDIA(core, m.p2p, peermem.NVIDIAConfig{Callback: m.cfg.Callback})
	if err != nil {
		return err
	}
	for _, r := range mod.Clients() {
		m.os.Mount("sys/kernel/mm/memory_peers/"+r.Name(), r.Tree())
	}
	return m.loaded(mod, nil)
}

func (m *Machine) addNIC(i int, c NIC, core *peermem.Core) (*nic.NIC, error) {
	at := c.GPU
	if at >= 0 {
		at %= len(m.topology.GPUs)
	}
	fn, err := m.topology.Plug(at)
	if err != nil {
		return nil, err
	}
	cfg := nic.Config{Name: nicName(i, c), Core: core, RM: m.p2p, GPUs: m.GPU.Driver, NoDMABuf: c.NoDMABuf, Token: c.Token}
	if c.Listen != "" {
		if cfg.Listen, err = netip.ParseAddrPort(c.Listen); err != nil {
			return nil, fmt.Errorf("%s: %w", cfg.Name, err)
		}
	}
	x := nic.New(fn, cfg)
	m.os.Mount("sys/class/infiniband/"+cfg.Name, x.Tree())
	// The process ends, with its registrations, before nvidia-peermem is unloaded.
	m.onClose(func() error { x.Release(); return nil })
	return x, nil
}

// parseNICs returns a number of adapters, each beside the GPU with its number.
func parseNICs(value string) ([]NIC, error) {
	n, err := strconv.Atoi(value)
	if err != nil || n < 0 || n > 8 {
		return nil, errors.New("must be 0 to 8")
	}
	list := make([]NIC, n)
	for i := range list {
		list[i].GPU = i
	}
	return list, nil
}
