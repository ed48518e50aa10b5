package route

import (
	"fmt"
	"slices"
	"strings"
)

// An ID names a route. The order is the ladder's: lower is better.
type ID uint8

const (
	None   ID = iota // no route: nothing was moved, or none is asked for
	Vendor           // NVIDIA's libcufile, where it would be direct
	NVFS             // our own client of nvidia-fs
	P2PDMA           // O_DIRECT on peer memory that the kernel knows
	NVMe             // user-space NVMe
	Bar              // pread and stores straight into BAR1
	Ring             // a ring of pinned memory
	Mapped           // page-cache pages pinned in place
	RDMA             // remote memory
	Host             // pread into host memory, then a copy

	numIDs = iota
)

var idNames = [numIDs]string{"none", "vendor", "nvfs", "p2pdma", "nvme", "bar", "ring", "mapped", "rdma", "host"}

func (id ID) String() string {
	if int(id) < len(idNames) {
		return idNames[id]
	}
	return fmt.Sprintf("ID(%d)", uint8(id))
}

// Names are the names of all routes by number.
func Names() []string { return slices.Clone(idNames[:]) }

// Parse is the inverse of String.
func Parse(name string) (ID, error) {
	for id, n := range idNames {
		if n == name && ID(id) != None {
			return ID(id), nil
		}
	}
	return None, fmt.Errorf("no route %q: the routes are %s", name, strings.Join(idNames[1:], ", "))
}

// MarshalText makes JSON carry the name.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (id *ID) UnmarshalText(text []byte) (err error) {
	if string(text) == idNames[None] {
		*id = None
		return nil
	}
	*id, err = Parse(string(text))
	return err
}
