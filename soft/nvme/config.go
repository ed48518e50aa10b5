package nvme

import (
	"cmp"
	"fmt"
	"math/bits"

	abi "github.com/culvert-io/culvert/internal/abi/nvme"
	"github.com/culvert-io/culvert/soft/pcie/syncpoint"
)

// A Medium contains the bytes of a namespace. It is safe for concurrent use.
type Medium interface {
	Size() (int64, error)
	// ReadV fills the segments from off. It returns fewer bytes, without an error,
	// only at the end of the medium.
	ReadV(segs [][]byte, off int64) (int, error)
	WriteV(segs [][]byte, off int64) (int, error)
	// Zero makes n bytes from off read as zeros.
	Zero(off, n int64) error
	// Flush returns when everything that was written is durable.
	Flush() error
}

// A Namespace is a medium in blocks.
type Namespace struct {
	Medium    Medium
	BlockSize int // a power of two from 512 to 4096; 0 means 512
}

// A Config describes a drive. Zero values mean defaults.
type Config struct {
	Namespaces  []Namespace // their ids are 1, 2, …
	Serial      string
	Queues      int   // pairs of I/O queues
	Entries     int   // of the largest queue
	MaxTransfer int   // bytes per command; negative means no limit
	Stride      uint8 // of doorbells: 4 << Stride bytes
	Workers     int   // commands executed in parallel
	// Heap keeps the registers on the Go heap, for the race detector.
	Heap   bool
	Points *syncpoint.Points
}

const (
	mpsMax  = 4 // MPSMAX: memory pages up to 64 KiB
	minPage = 4096
)

// withDefaults sets defaults and checks the other values.
func (c Config) withDefaults() (Config, error) {
	c.Queues = cmp.Or(c.Queues, 16)
	c.Entries = cmp.Or(c.Entries, 1024)
	c.MaxTransfer = cmp.Or(c.MaxTransfer, 1<<20)
	c.Workers = cmp.Or(c.Workers, 4)
	c.Serial = cmp.Or(c.Serial, "CULVERT0")
	switch {
	case c.Queues < 1 || c.Queues > 1<<15:
		return c, fmt.Errorf("%d queue pairs must be 1 to %d", c.Queues, 1<<15)
	case c.Entries < 2 || c.Entries > 1<<16:
		return c, fmt.Errorf("queue size %d must be 2 to %d entries", c.Entries, 1<<16)
	case c.MaxTransfer > 0 && (c.MaxTransfer < 2*minPage || c.MaxTransfer&(c.MaxTransfer-1) != 0):
		return c, fmt.Errorf("transfer size %d must be a power of two, at least %d", c.MaxTransfer, 2*minPage)
	case c.Stride > 15:
		return c, fmt.Errorf("doorbell stride %d must be 0 to 15", c.Stride)
	case c.Workers < 1:
		return c, fmt.Errorf("%d workers must be at least 1", c.Workers)
	case len(c.Serial) > len(abi.IdentifyController{}.SN):
		return c, fmt.Errorf("serial number %q must have at most %d characters", c.Serial, len(abi.IdentifyController{}.SN))
	}
	return c, nil
}

// cap returns the register CAP.
func (c Config) cap() uint64 {
	const timeout = 20 // in half seconds: a busy machine is slow
	return uint64(c.Entries-1) | abi.CAP_CQR | timeout<<abi.CAP_TO_SHIFT | uint64(c.Stride)<<abi.CAP_DSTRD_SHIFT |
		abi.CAP_CSS_NVM | mpsMax<<abi.CAP_MPSMAX_SHIFT
}

// barSize returns the size of BAR0: registers and doorbells, rounded up to a power of
// two.
func (c Config) barSize() uint64 {
	end := abi.CQHDBL(uint16(c.Queues), c.Stride) + 4
	return 1 << bits.Len64(end-1)
}

// mdts returns the field of Identify Controller.
func (c Config) mdts() uint8 {
	if c.MaxTransfer < 0 {
		return 0 // no limit
	}
	return uint8(bits.TrailingZeros(uint(c.MaxTransfer / minPage)))
}
