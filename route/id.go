package route

import (
	"slices"

	"github.com/culvert-io/culvert/internal/enum"
)

// An ID identifies a route. Routes are ordered: lower is better.
type ID uint8

const (
	None   ID = iota // no route: nothing was moved, or none is required
	Vendor           // NVIDIA's libcufile, only where it bypasses host memory
	NVFS             // DMA between drive and GPU memory by nvidia-fs
	P2PDMA           // O_DIRECT on GPU memory mapped as P2PDMA pages
	NVMe             // DMA between a drive without a file system and GPU memory, by package nvme
	RDMA             // DMA between a network adapter and GPU memory, for files of other hosts
	Bar              // pread into a BAR1 mapping
	Ring             // staging through a ring of pinned memory
	Mapped           // page-cache pages pinned in place
	Host             // pread into host memory, then a copy

	numIDs = iota
)

var idNames = [numIDs]string{"none", "vendor", "nvfs", "p2pdma", "nvme", "rdma", "bar", "ring", "mapped", "host"}

func (id ID) String() string { return enum.Name(idNames[:], id, "ID(%d)") }

// Direct reports whether a drive or a network adapter moves the bytes: none enter host
// memory.
func (id ID) Direct() bool { return id >= Vendor && id <= RDMA }

// Staged reports whether all bytes go through host memory.
func (id ID) Staged() bool { return id >= Ring && id <= Host }

// Names lists the names of all routes, indexed by ID.
func Names() []string { return slices.Clone(idNames[:]) }

// Parse is the inverse of String.
func Parse(name string) (ID, error) { return enum.Parse("route", idNames[:], Vendor, name) }

// MarshalText encodes the route as its name.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (id *ID) UnmarshalText(text []byte) (err error) {
	*id, err = enum.Parse("route", idNames[:], None, string(text))
	return err
}
