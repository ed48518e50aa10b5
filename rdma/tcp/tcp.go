// Package tcp is verbs over TCP: native Go, between threads, processes and hosts, with the
// semantics and the completion codes of an adapter. It has no RDMA: the CPUs of both ends
// move the bytes, and results must name this provider.
//
// It listens on the loopback address unless told otherwise. On other addresses it needs a
// token, which authenticates both ends but does not encrypt, or TLS. It reaches memory of
// the process; GPU memory needs staging.
package tcp

import (
	"crypto/tls"
	"fmt"
	"net/netip"
	"sync"
	"syscall"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/hostmem"
	"github.com/culvert-io/culvert/internal/verbs"
	"github.com/culvert-io/culvert/rdma"
)

// Name is the provider's name.
const Name = "tcp"

// deviceName is the name of the only device.
const deviceName = "tcp0"

// A Config describes a provider. The zero value is for one host.
type Config struct {
	// Listen is the address for peers, as "192.0.2.1:0"; "" means 127.0.0.1 and any port.
	// An unspecified address stands for those of all interfaces.
	Listen string
	// Token is a secret that both ends know. Its holders trust the network between them.
	Token []byte
	// TLS encrypts. It is used for both ends of a connection: it needs a certificate that
	// is valid for the address, and the authorities of the peers'.
	TLS *tls.Config
}

// A Provider has one device.
type Provider struct {
	cfg    Config
	listen netip.AddrPort

	mu   sync.Mutex
	open map[*verbs.Device]bool
}

// New returns a provider.
func New(cfg Config) (*Provider, error) {
	p := &Provider{cfg: cfg, listen: netip.MustParseAddrPort("127.0.0.1:0"), open: map[*verbs.Device]bool{}}
	if cfg.Listen != "" {
		var err error
		if p.listen, err = netip.ParseAddrPort(cfg.Listen); err != nil {
			return nil, fmt.Errorf("provider tcp: listen address %q must be like 192.0.2.1:0: %w", cfg.Listen, err)
		}
	}
	return p, nil
}

// Name implements rdma.Provider.
func (p *Provider) Name() string { return Name }

// Devices implements rdma.Provider.
func (p *Provider) Devices() ([]rdma.DeviceInfo, error) {
	return []rdma.DeviceInfo{{Name: deviceName}}, nil
}

// Open implements rdma.Provider. Every device that is open listens on its own port.
func (p *Provider) Open(name string) (rdma.Device, error) {
	if name != "" && name != deviceName {
		return nil, fmt.Errorf("provider tcp: no device %q (devices: %s): %w", name, deviceName, syscall.ENODEV)
	}
	var d *verbs.Device
	d, err := verbs.Open(verbs.Config{
		Info: rdma.DeviceInfo{Name: deviceName}, Provider: Name, Firmware: "TCP",
		Listen: p.listen, Token: p.cfg.Token, TLS: p.cfg.TLS, Register: register,
		Closed: func() { p.closed(d) },
	})
	if err != nil {
		return nil, fmt.Errorf("provider tcp: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open[d] = true
	return d, nil
}

func (p *Provider) closed(d *verbs.Device) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, d)
}

// Break breaks all connections, as a fault of the network does. Queue pairs connect again
// and resume.
func (p *Provider) Break() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for d := range p.open {
		d.Break()
	}
}

// Close implements rdma.Provider.
func (p *Provider) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.open); n > 0 {
		return fmt.Errorf("close provider tcp: %d devices are open: %w", n, syscall.EBUSY)
	}
	return nil
}

// host is memory of the process.
type host []byte

// register finds the memory. It must stay mapped until the region is closed.
func register(m rdma.Memory, access rdma.Access, _ func()) (verbs.Backing, error) {
	if m.File != nil {
		return nil, fmt.Errorf("TCP has no device that could import a dma-buf: %w", syscall.EOPNOTSUPP)
	}
	if b := m.Bytes(); b != nil {
		return host(b), nil
	}
	if err := hostmem.Accessible(m.Addr, m.Len, access&rdma.LocalWrite != 0); err != nil {
		return nil, err
	}
	return host(gpu.HostBytes(gpu.Addr(m.Addr), m.Len)), nil
}

// Acquire implements verbs.Backing.
func (h host) Acquire(segs [][]byte, off uint64, n int, _ bool) ([][]byte, verbs.Hold, error) {
	return append(segs, h[off:off+uint64(n)]), nil, nil
}

// Close implements verbs.Backing.
func (h host) Close() error { return nil }
