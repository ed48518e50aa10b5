package gdrcopy

import (
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/enum"
)

// A backend pins and maps GPU memory. It is safe for concurrent use.
type backend interface {
	// Describe returns the backend for SessionInfo. Its Declined is ignored.
	Describe() SessionInfo
	// Pin pins n bytes from a.
	Pin(a gpu.Addr, n uint64) (pinned, error)
	Close() error
}

// A pinned memory is kept by a backend. Its calls do not overlap.
type pinned interface {
	// Info describes the pin. Its Mapped is ignored.
	Info() Info
	// Revoked reports whether the memory was freed, which ended the pin.
	Revoked() (bool, error)
	// Map maps exactly the requested bytes. They are valid until unmap.
	Map() (mem []byte, unmap func() error, err error)
	Unpin() error
}

// Info describes a buffer, as gdr_get_info does.
type Info struct {
	VA         gpu.Addr    `json:"va"`          // of the first pinned page
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

var mappingNames = [...]string{"NONE", "WC", "CACHING", "DEVICE"}

func (t MappingType) String() string { return enum.Name(mappingNames[:], t, "MappingType(%d)") }

// MarshalText returns the printed form, for JSON.
func (t MappingType) MarshalText() ([]byte, error) { return []byte(t.String()), nil }
