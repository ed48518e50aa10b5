package gdrcopy

import (
	"fmt"

	"github.com/culvert-io/culvert/gpu"
)

// A Backend is a way to pin and map GPU memory. It is safe for concurrent use.
type Backend interface {
	Name() string
	// Pin holds n bytes from a in place.
	Pin(a gpu.Addr, n uint64) (Pin, error)
	Close() error
}

// A Pin is memory that a backend holds. Its calls do not overlap.
type Pin interface {
	// Info describes the pin. Mapped is not looked at.
	Info() Info
	// Map makes the bytes that were asked for visible to the CPU, no more and
	// no less. They stay valid until unmap.
	Map() (mem []byte, unmap func() error, err error)
	Unpin() error
}

// Info is what GDRCopy tells of a buffer.
type Info struct {
	VA         gpu.Addr    `json:"va"`          // of the first page that is pinned
	MappedSize uint64      `json:"mapped_size"` // in whole pages
	PageSize   uint32      `json:"page_size"`
	Mapped     bool        `json:"mapped"`
	Type       MappingType `json:"mapping_type"`
}

// A MappingType says how the CPU caches a mapping. The numbers are GDRCopy's.
type MappingType uint32

const (
	MappingNone    MappingType = 0 // not mapped
	MappingWC      MappingType = 1 // write-combining
	MappingCaching MappingType = 2 // cached, on coherent platforms
	MappingDevice  MappingType = 3 // uncached device memory
)

func (t MappingType) String() string {
	names := [...]string{"NONE", "WC", "CACHING", "DEVICE"}
	if int(t) < len(names) {
		return names[t]
	}
	return fmt.Sprintf("MappingType(%d)", uint32(t))
}

// MarshalText makes JSON carry the printed form.
func (t MappingType) MarshalText() ([]byte, error) { return []byte(t.String()), nil }
