package nvme

import "github.com/culvert-io/culvert/gpu"

// A Transport gives access to one controller. It is safe for concurrent use. Only
// one driver may use it at a time.
type Transport interface {
	// Name is the controller's PCI address.
	Name() string
	Registers
	// MapHost maps host memory, in pages of 4 KiB, for the controller. It
	// returns the bus addresses and the size of the mapped pages. A second call
	// of unmap fails.
	MapHost(b []byte) (pages []uint64, size uint64, unmap func() error, err error)
	// MapGPU does the same for GPU memory, in pages of 64 KiB. If the memory was
	// freed, unmap fails with EINVAL.
	MapGPU(s gpu.Span) (pages []uint64, size uint64, unmap func() error, err error)
	// Interrupt is a channel with a buffer of one that receives a value when the
	// controller sends the interrupt. It fails with errors.ErrUnsupported if
	// there are no interrupts; then the driver polls.
	Interrupt(vector int) (<-chan struct{}, error)
	// Reset does a function level reset. It fails with errors.ErrUnsupported if
	// that is not possible.
	Reset() error
	Close() error
}

// Registers are BAR0. Offsets are multiples of the access size, below BARSize.
// All bits of a removed device read as one.
type Registers interface {
	BARSize() uint64
	Load32(off uint64) uint32
	Load64(off uint64) uint64
	// A store is ordered after all earlier stores to memory: a controller that
	// sees a doorbell written finds the commands.
	Store32(off uint64, v uint32)
	Store64(off, v uint64)
}
