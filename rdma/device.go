package rdma

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/culvert-io/culvert/internal/enum"
)

// A Provider has devices. All methods of all types are safe for concurrent use, unless
// one says otherwise.
type Provider interface {
	// Name is "ibverbs", "tcp" or "soft". Every line that reports a transfer has it.
	Name() string
	// Devices lists the devices without opening any.
	Devices() ([]DeviceInfo, error)
	// Open opens the device with that name; "" is the first.
	Open(name string) (Device, error)
	// Close closes the provider. Devices must be closed before.
	Close() error
}

// A DeviceInfo describes a device that is not open.
type DeviceInfo struct {
	Name string // "mlx5_0"
	GUID uint64
	PCI  string // "0000:65:00.0"; "" if it has none
}

// A Device is an open device: struct ibv_context.
type Device interface {
	Info() DeviceInfo
	Provider() string
	Attr() (DeviceAttr, error)
	// Port describes a port; the first is 1.
	Port(n int) (PortAttr, error)
	// GIDs returns the GID table of a port, without empty entries.
	GIDs(port int) ([]GIDEntry, error)
	AllocPD() (PD, error)
	// CreateCQ creates a queue with room for n completions.
	CreateCQ(n int) (CQ, error)
	// Close closes the device. It fails with EBUSY while it has objects.
	Close() error
}

// A DeviceAttr has the limits of a device.
type DeviceAttr struct {
	Firmware       string
	Ports          int
	MaxMRSize      uint64
	MaxQP, MaxQPWR int
	MaxSGE         int
	MaxCQE         int
	MaxRDAtomic    int // reads and atomics that a queue pair may have in flight
	MaxInline      int
	Atomics        bool
	OnDemandPaging bool
}

// A PortState is enum ibv_port_state.
type PortState uint32

// The states of a port, with the numbers of verbs.
const (
	PortDown   PortState = 1
	PortInit   PortState = 2
	PortArmed  PortState = 3
	PortActive PortState = 4
)

var portStateNames = [...]string{"state 0", "down", "initializing", "armed", "active"}

func (s PortState) String() string { return enum.Name(portStateNames[:], s, "state %d") }

// A LinkLayer is what a port speaks.
type LinkLayer uint8

// The link layers, with the numbers of verbs.
const (
	LinkUnspecified LinkLayer = 0
	LinkInfiniBand  LinkLayer = 1
	LinkEthernet    LinkLayer = 2
)

var linkNames = [...]string{"unspecified", "InfiniBand", "Ethernet"}

func (l LinkLayer) String() string { return enum.Name(linkNames[:], l, "link layer %d") }

// An MTU is enum ibv_mtu: 1 means 256 bytes, 5 means 4096.
type MTU uint32

// Bytes is the size of a packet's payload.
func (m MTU) Bytes() int { return 128 << min(max(m, 1), 5) }

// A PortAttr describes a port: struct ibv_port_attr.
type PortAttr struct {
	State     PortState
	ActiveMTU MTU
	MaxMTU    MTU
	MaxMsg    uint32 // bytes in one work request
	LID       uint16 // over TCP: the TCP port
	Link      LinkLayer
	Gbps      float64 // of the link; 0 if unknown
	GIDs      int     // length of the table
}

// A PD is a protection domain: a queue pair reaches only the memory of its own.
type PD interface {
	// Register registers memory. Failures are *RegisterError.
	Register(m Memory, access Access) (MR, error)
	CreateQP(QPConfig) (QP, error)
	// Close fails with EBUSY while the domain has regions or queue pairs.
	Close() error
}

// An MR is registered memory.
type MR interface {
	LKey() uint32
	RKey() uint32
	// Addr is the address of the first byte in work requests, local and remote.
	Addr() uint64
	Len() uint64
	// Close deregisters. When it returns, no peer reaches the memory.
	Close() error
}

// A CQ is a completion queue.
type CQ interface {
	// Poll moves completions to wcs and returns their number. It never blocks and never
	// allocates. It fails if completions were lost because the queue was full.
	Poll(wcs []WC) (int, error)
	// Arm requests an event for the next completion (or the next one that is solicited
	// or failed). Completions that are in the queue already make none: poll again after
	// it.
	Arm(solicited bool) error
	// Wait waits for an event after Arm.
	Wait(ctx context.Context) error
	Close() error
}

// A QP is a reliable connected queue pair.
type QP interface {
	Num() uint32
	State() State
	// Modify changes the attributes in mask; see [CheckStep].
	Modify(a QPAttr, mask Mask) error
	// PostSend and PostRecv post requests in order, and return how many were posted.
	// They fail with EINVAL for a state or request that verbs reject at once, and with
	// ENOMEM if the queue is full. The requests may be reused when they return. They
	// never block.
	PostSend([]SendWR) (int, error)
	PostRecv([]RecvWR) (int, error)
	// Close destroys the queue pair. What is posted does not complete.
	Close() error
}

// A GID is an address of a port: struct ibv_gid. With RoCE v2 it is an IP address.
type GID [16]byte

// GIDFrom is the GID of an IP address.
func GIDFrom(a netip.Addr) GID { return a.As16() }

// Addr is the GID as an IP address.
func (g GID) Addr() netip.Addr { return netip.AddrFrom16(g).Unmap() }

// IsZero reports whether the entry is empty.
func (g GID) IsZero() bool { return g == GID{} }

func (g GID) String() string {
	s := fmt.Sprintf("%x", g[:])
	for i := 28; i > 0; i -= 4 {
		s = s[:i] + ":" + s[i:]
	}
	return s
}

// A GIDType is enum ibv_gid_type.
type GIDType uint32

// The types of GIDs, with the numbers of verbs.
const (
	GIDInfiniBand GIDType = 0
	GIDRoCEv1     GIDType = 1
	GIDRoCEv2     GIDType = 2
)

var gidTypeNames = [...]string{"IB", "RoCE v1", "RoCE v2"}

func (t GIDType) String() string { return enum.Name(gidTypeNames[:], t, "type %d") }

// A GIDEntry is an entry of a port's GID table.
type GIDEntry struct {
	GID    GID
	Index  int
	Port   int
	Type   GIDType
	NetDev string // "eth0"; "" if unknown
}
