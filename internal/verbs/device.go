package verbs

import (
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"

	"golang.org/x/sync/semaphore"

	"github.com/culvert-io/culvert/rdma"
)

// A Config describes a device.
type Config struct {
	Info     rdma.DeviceInfo
	Provider string
	Firmware string
	// Listen is the address for connections of peers; the port is the LID, 0 picks one.
	Listen netip.AddrPort
	// Token authenticates both ends of a connection; they must have the same.
	Token []byte
	// TLS, if not nil, encrypts connections; it must work for both ends of one.
	TLS *tls.Config
	// Register gives memory a backing. revoke may be called at any time until
	// Backing.Close returns: it ends all access before it returns.
	Register func(m rdma.Memory, access rdma.Access, revoke func()) (Backing, error)
	// Closed is called when the device was closed.
	Closed func()
	// Gbps is the rate of the link; 0 if unknown.
	Gbps float64
}

// A Device is an open device: an rdma.Device.
type Device struct {
	cfg  Config
	lis  net.Listener
	lid  uint16
	gids []rdma.GIDEntry

	tasks  sync.WaitGroup      // goroutines of the device
	hellos *semaphore.Weighted // handshakes in flight

	mu       sync.Mutex
	closed   bool
	objects  int // domains and completion queues
	regions  map[uint32]*Region
	pairs    map[uint32]*QP
	conns    map[net.Conn]bool
	atomics  sync.Mutex // atomics of peers are atomic to each other
	counters counters
}

// Open opens a device.
func Open(cfg Config) (*Device, error) {
	if err := checkExposure(cfg); err != nil {
		return nil, err
	}
	lis, err := net.Listen("tcp", cfg.Listen.String())
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", cfg.Info.Name, err)
	}
	at := lis.Addr().(*net.TCPAddr).AddrPort()
	d := &Device{
		cfg: cfg, lis: lis, lid: at.Port(), hellos: semaphore.NewWeighted(maxHellos),
		regions: map[uint32]*Region{}, pairs: map[uint32]*QP{}, conns: map[net.Conn]bool{},
	}
	d.gids, err = gidTable(at.Addr().Unmap())
	if err != nil {
		_ = lis.Close() // the first error is reported
		return nil, fmt.Errorf("open %s: %w", cfg.Info.Name, err)
	}
	d.tasks.Go(d.accept)
	return d, nil
}

func checkExposure(cfg Config) error {
	a := cfg.Listen.Addr()
	if !a.IsValid() {
		return fmt.Errorf("open %s: the listen address is missing", cfg.Info.Name)
	}
	if !a.Unmap().IsLoopback() && len(cfg.Token) == 0 && cfg.TLS == nil {
		return fmt.Errorf("open %s: listening on %v, which other hosts reach, needs a token or TLS (fix: set one, or listen on 127.0.0.1)", cfg.Info.Name, a)
	}
	return nil
}

// gidTable has the listen address, or those of all interfaces if it is unspecified.
func gidTable(a netip.Addr) (table []rdma.GIDEntry, err error) {
	addrs := []netip.Addr{a}
	if a.IsUnspecified() {
		if addrs, err = interfaceAddrs(a.Is4()); err != nil {
			return nil, err
		}
	}
	for i, a := range addrs {
		table = append(table, rdma.GIDEntry{GID: rdma.GIDFrom(a), Index: i, Port: 1, Type: rdma.GIDRoCEv2})
	}
	return table, nil
}

func interfaceAddrs(only4 bool) (addrs []netip.Addr, err error) {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	for _, x := range list {
		p, err := netip.ParsePrefix(x.String())
		// A zone cannot be part of a GID.
		if err == nil && !p.Addr().IsLinkLocalUnicast() && (p.Addr().Is4() || !only4) {
			addrs = append(addrs, p.Addr())
		}
	}
	return addrs, nil
}

// Info, Provider, Attr, Port and GIDs implement rdma.Device.
func (d *Device) Info() rdma.DeviceInfo { return d.cfg.Info }

// Provider is the provider's name.
func (d *Device) Provider() string { return d.cfg.Provider }

// DefaultPort is the TCP port of a peer whose LID is 0: the number of RoCE v2's UDP port.
const DefaultPort = 4791

// Limits of a device.
const (
	maxQPWR     = 1 << 14
	maxSGE      = 30
	maxRDAtomic = 64
	maxInline   = 512
	maxCQE      = 1 << 20
	maxQP       = 1 << 16
	maxHellos   = 128
)

// Attr has the limits.
func (d *Device) Attr() (rdma.DeviceAttr, error) {
	return rdma.DeviceAttr{
		Firmware: d.cfg.Firmware, Ports: 1, MaxMRSize: 1 << 46, MaxQP: maxQP, MaxQPWR: maxQPWR, MaxSGE: maxSGE,
		MaxCQE: maxCQE, MaxRDAtomic: maxRDAtomic, MaxInline: maxInline, Atomics: true,
	}, nil
}

// Port describes the port.
func (d *Device) Port(n int) (rdma.PortAttr, error) {
	if n != 1 {
		return rdma.PortAttr{}, fmt.Errorf("%s: port %d: there is port 1 only: %w", d.cfg.Info.Name, n, syscall.EINVAL)
	}
	return rdma.PortAttr{
		State: rdma.PortActive, ActiveMTU: 5, MaxMTU: 5, MaxMsg: maxMessage, LID: d.lid, Link: rdma.LinkEthernet,
		Gbps: d.cfg.Gbps, GIDs: len(d.gids),
	}, nil
}

// GIDs returns the GID table.
func (d *Device) GIDs(port int) ([]rdma.GIDEntry, error) {
	if _, err := d.Port(port); err != nil {
		return nil, err
	}
	return append([]rdma.GIDEntry(nil), d.gids...), nil
}

// AllocPD implements rdma.Device.
func (d *Device) AllocPD() (rdma.PD, error) {
	if err := d.hold(); err != nil {
		return nil, fmt.Errorf("allocate protection domain: %w", err)
	}
	return &PD{dev: d}, nil
}

// CreateCQ implements rdma.Device.
func (d *Device) CreateCQ(n int) (rdma.CQ, error) {
	if n < 1 || n > maxCQE {
		return nil, fmt.Errorf("create completion queue: size %d must be 1 to %d: %w", n, maxCQE, syscall.EINVAL)
	}
	if err := d.hold(); err != nil {
		return nil, fmt.Errorf("create completion queue: %w", err)
	}
	return &CQ{dev: d, ring: make([]rdma.WC, n), event: make(chan struct{}, 1)}, nil
}

func (d *Device) hold() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return fmt.Errorf("%s is closed: %w", d.cfg.Info.Name, syscall.ENODEV)
	}
	d.objects++
	return nil
}

func (d *Device) drop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.objects--
}

// Close implements rdma.Device.
func (d *Device) Close() error {
	d.mu.Lock()
	switch {
	case d.closed:
		d.mu.Unlock()
		return fmt.Errorf("close %s: it is closed: %w", d.cfg.Info.Name, syscall.EINVAL)
	case d.objects > 0:
		n := d.objects
		d.mu.Unlock()
		return fmt.Errorf("close %s: it has %d domains and completion queues: %w", d.cfg.Info.Name, n, syscall.EBUSY)
	}
	d.closed = true
	for c := range d.conns {
		_ = c.Close() // handshakes, and what lingers after errors
	}
	d.mu.Unlock()
	err := d.lis.Close()
	d.tasks.Wait()
	if d.cfg.Closed != nil {
		d.cfg.Closed()
	}
	return err
}

// newKey returns a random number that is not in use. The caller has the lock.
func newKey[T any](m map[uint32]T, bits int) uint32 {
	for {
		var b [4]byte
		_, _ = rand.Read(b[:]) // never fails
		k := binary.LittleEndian.Uint32(b[:]) >> (32 - bits)
		if _, used := m[k]; !used && k > 1 {
			return k
		}
	}
}

func (d *Device) region(key uint32) *Region {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.regions[key]
}

func (d *Device) pair(num uint32) *QP {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.pairs[num]
}

// Break breaks all connections, as a fault of the network does. Queue pairs resume.
func (d *Device) Break() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.conns {
		_ = c.Close()
	}
}

// track remembers a connection until untrack, so that Close ends it.
func (d *Device) track(c net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	d.conns[c] = true
	return true
}

func (d *Device) untrack(c net.Conn) {
	_ = c.Close()
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.conns, c)
}
