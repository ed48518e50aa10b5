package nic

import (
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
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
	// Listen is the address of the port. The zero value is a loopback address of its own
	// for each time the adapter is opened, so that a GID alone tells where a peer is.
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
	d, err := n.listen()
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.devices = append(n.devices, d)
	return d, nil
}

// listen opens the device on the configured address, or on the first of some loopback
// addresses that is free.
func (n *NIC) listen() (*verbs.Device, error) {
	if n.cfg.Listen.IsValid() {
		return n.openAt(n.cfg.Listen)
	}
	const tries = 64
	for range tries {
		d, err := n.openAt(netip.AddrPortFrom(loopback(rand.Uint32()), verbs.DefaultPort))
		if err == nil {
			return d, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	// A host with one loopback address. Peers then need the LID.
	return n.openAt(netip.AddrPortFrom(loopback(1), 0))
}

// loopback is an address in 127.0.0.0/8, except its first and last.
func loopback(n uint32) netip.Addr {
	n = (n-1)%(1<<24-2) + 1
	return netip.AddrFrom4([4]byte{127, byte(n >> 16), byte(n >> 8), byte(n)})
}

func (n *NIC) openAt(at netip.AddrPort) (*verbs.Device, error) {
	var d *verbs.Device
	d, err := verbs.Open(verbs.Config{
		Info: n.Info(), Provider: Name, Firmware: "software", Listen: at, Token: n.cfg.Token, Gbps: Gbps,
		Register: n.register, Closed: func() { n.closed(d) },
	})
	return d, err
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
	all := slices.Collect(maps.Keys(n.regions))
	n.mu.Unlock()
	for _, r := range all {
		r.revoke()
		_ = r.Close() // a second Close does nothing
	}
}
