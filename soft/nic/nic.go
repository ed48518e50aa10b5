package nic

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"sync"
	"syscall"

	"github.com/culvert-io/culvert/internal/verbs"
	"github.com/culvert-io/culvert/rdma"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
	"github.com/culvert-io/culvert/soft/kernel/p2p"
	"github.com/culvert-io/culvert/soft/kernel/peermem"
	"github.com/culvert-io/culvert/soft/pcie"
)

// Name is the name of the provider.
const Name = "soft"

// Gbps is the nominal rate of the link, for sysfs.
const Gbps = 400

// A Config describes an adapter.
type Config struct {
	Name string // "soft0"
	Core *peermem.Core
	RM   *p2p.RM
	GPUs *softgpu.Driver // whose dma-bufs can be imported
	// NoDMABuf: the adapter's driver cannot import a dma-buf.
	NoDMABuf bool
	// Listen is the address of the port; the zero value is the loopback address.
	Listen netip.AddrPort
	Token  []byte
}

// A NIC is an adapter. It is safe for concurrent use.
type NIC struct {
	fn  *pcie.Function
	cfg Config

	mu      sync.Mutex
	devices []*verbs.Device // open ones
	regions map[*region]bool
	past    verbs.Counters // of devices that were closed
}

// New plugs an adapter in at fn.
func New(fn *pcie.Function, cfg Config) *NIC {
	if !cfg.Listen.IsValid() {
		cfg.Listen = netip.MustParseAddrPort("127.0.0.1:0")
	}
	return &NIC{fn: fn, cfg: cfg, regions: map[*region]bool{}}
}

// Function returns where the adapter is plugged in.
func (n *NIC) Function() *pcie.Function { return n.fn }

// Info describes the adapter.
func (n *NIC) Info() rdma.DeviceInfo {
	h := fnv.New64a()
	_, _ = h.Write([]byte(n.cfg.Name + n.fn.Name())) // never fails
	return rdma.DeviceInfo{Name: n.cfg.Name, GUID: h.Sum64(), PCI: n.fn.Name()}
}

// Open opens the adapter, each time with a port of its own on the wire.
func (n *NIC) Open() (rdma.Device, error) {
	if n.fn.Removed() {
		return nil, fmt.Errorf("open %s: %w", n.cfg.Name, syscall.ENODEV)
	}
	var d *verbs.Device
	d, err := verbs.Open(verbs.Config{
		Info: n.Info(), Provider: Name, Firmware: "software", Listen: n.cfg.Listen, Token: n.cfg.Token, Gbps: Gbps,
		Register: n.register, Closed: func() { n.closed(d) },
	})
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.devices = append(n.devices, d)
	return d, nil
}

func (n *NIC) closed(d *verbs.Device) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.devices = slices.DeleteFunc(n.devices, func(x *verbs.Device) bool { return x == d })
	n.past = n.past.Add(d.Counters())
}

// counters returns the counters of all devices that are or were open.
func (n *NIC) counters() verbs.Counters {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := n.past
	for _, d := range n.devices {
		c = c.Add(d.Counters())
	}
	return c
}

// Regions returns the number of registered regions.
func (n *NIC) Regions() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.regions)
}

// Release ends all registrations, as the end of the process does. Keys give errors.
func (n *NIC) Release() {
	n.mu.Lock()
	var all []*region
	for r := range n.regions {
		all = append(all, r)
	}
	n.mu.Unlock()
	for _, r := range all {
		r.revoke()
		_ = r.Close() // a second Close does nothing
	}
}
