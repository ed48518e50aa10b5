package nvme

import "github.com/culvert-io/culvert/gpu"

// A Transport is a way to one controller. It is safe for concurrent use. A
// Transport has one driver at a time.
type Transport interface {
	// Name is the controller's PCI address.
	Name() string
	Registers
	// MapHost gives the controller access to host memory, which consists of
	// whole pages of 4 KiB, and returns the bus addresses of its pages and
	// their size. unmap takes the access back; a second call fails.
	MapHost(b []byte) (pages []uint64, size uint64, unmap func() error, err error)
	// MapGPU does the same with whole pages of 64 KiB of GPU memory. After the
	// memory was freed unmap fails with EINVAL.
	MapGPU(s gpu.Span) (pages []uint64, size uint64, unmap func() error, err error)
	// Interrupt is a channel that gets a value, unless there is one in it, when
	// the controller sends the interrupt. Where there is no such thing the
	// error is errors.ErrUnsupported, and the driver polls.
	Interrupt(vector int) (<-chan struct{}, error)
	// Reset stops the controller by force, with a function level reset. Where
	// that cannot be done the error is errors.ErrUnsupported.
	Reset() error
	Close() error
}

// Registers are BAR0. Offsets are multiples of the access's size, below
// BARSize. A device that is gone reads as ones.
type Registers interface {
	BARSize() uint64
	Load32(off uint64) uint32
	Load64(off uint64) uint64
	// A store comes after everything that the program stored to memory before
	// it: a controller that sees a doorbell rung finds the commands.
	Store32(off uint64, v uint32)
	Store64(off, v uint64)
}
