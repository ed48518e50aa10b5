package gpu

import (
	"fmt"

	"github.com/culvert-io/culvert/gpu"
)

// A Backing is the kind of memory that a software GPU uses.
type Backing uint8

const (
	// Mapped memory is shared memory of the operating system, so that frames can be mapped
	// a second time ([Access.Mmap]).
	Mapped Backing = iota
	// Heap memory is Go's, the only one that the race detector observes. It is used for
	// frames and pinned memory, and is not locked.
	Heap
)

// A Config describes the GPUs of a machine.
type Config struct {
	Models  []Model // none means one H200
	Backing Backing
	Scatter bool   // give allocations frames that are not neighbours
	Seed    uint64 // of Scatter, and of the GPUs' UUIDs
	// Peer is the address of a PCI device with peer memory ("0000:03:00.0"), such as the
	// controller memory buffer of a drive. The one GPU uses it as its memory, so that real
	// devices can reach it.
	Peer string
	// Zero makes fresh memory zero, as an H200's driver does, also if it was freed just
	// before. Otherwise memory that was never used has a pattern, and freed memory its old
	// contents, so that software which relies on zeros is found.
	Zero bool
	// Shared is the path of a file by which processes share the memory of the GPUs: all
	// that have the same path and the same Config. "" gives the process GPUs of its own.
	Shared string
}

// maxGPUs is the number of GPUs with separate PCI bus numbers, see pciBus.
const maxGPUs = 16

func (c *Config) check() error {
	if len(c.Models) == 0 {
		c.Models = []Model{H200()}
	}
	if len(c.Models) > maxGPUs {
		return fmt.Errorf("software GPU: number of GPUs %d must be at most %d: %w", len(c.Models), maxGPUs, gpu.ErrInvalidValue)
	}
	if c.Backing > Heap {
		return fmt.Errorf("software GPU: unknown backing %d: %w", c.Backing, gpu.ErrInvalidValue)
	}
	if c.Peer != "" && (len(c.Models) > 1 || c.Backing == Heap) {
		return fmt.Errorf("software GPU: peer memory of %s must be used by one GPU, and not with heap memory: %w", c.Peer, gpu.ErrInvalidValue)
	}
	if c.Shared != "" && (c.Backing == Heap || c.Peer != "") {
		return fmt.Errorf("software GPU: memory on the Go heap or in a PCI device cannot be shared by %s: %w (fix: unset CULVERT_SHARED, or leave heap and peer out of CULVERT_SOFT)", c.Shared, gpu.ErrNotSupported)
	}
	for i, m := range c.Models {
		if m.Memory != 0 && m.Memory < blockSize {
			return fmt.Errorf("software GPU %d (%s): memory size %d must be at least %d: %w", i, m.Name, m.Memory, blockSize, gpu.ErrInvalidValue)
		}
	}
	return nil
}
