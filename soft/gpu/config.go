package gpu

import (
	"fmt"

	"github.com/culvert-io/culvert/gpu"
)

// A Backing says what the software GPU's memory is made of.
type Backing uint8

const (
	// Mapped memory is shared memory of the operating system, so that frames
	// can be mapped a second time ([Access.Mmap]).
	Mapped Backing = iota
	// Heap memory is Go's, for the race detector, which sees nothing else. It
	// holds frames and pinned memory alike, and is not locked.
	Heap
)

// A Config describes the GPUs of a machine.
type Config struct {
	Models  []Model // none means one H200
	Backing Backing
	Scatter bool   // give allocations frames that are not neighbours
	Seed    uint64 // of Scatter, and of the GPUs' UUIDs
	// Peer is the address of a PCI device with peer memory ("0000:03:00.0"), such
	// as the controller memory buffer of a drive: the memory of the one GPU is
	// taken from there, and so real devices can reach it.
	Peer string
}

// maxGPUs is how many GPUs have PCI bus numbers of their own, see pciBus.
const maxGPUs = 16

func (c *Config) check() error {
	if len(c.Models) == 0 {
		c.Models = []Model{H200()}
	}
	if len(c.Models) > maxGPUs {
		return fmt.Errorf("software GPU: %d GPUs: at most %d: %w", len(c.Models), maxGPUs, gpu.ErrInvalidValue)
	}
	if c.Backing > Heap {
		return fmt.Errorf("software GPU: unknown backing %d: %w", c.Backing, gpu.ErrInvalidValue)
	}
	if c.Peer != "" && (len(c.Models) > 1 || c.Backing == Heap) {
		return fmt.Errorf("software GPU: the memory of %s is for one GPU and is not the heap's: %w", c.Peer, gpu.ErrInvalidValue)
	}
	for i, m := range c.Models {
		if m.Memory != 0 && m.Memory < blockSize {
			return fmt.Errorf("software GPU %d (%s): %d bytes of memory: a block has %d: %w", i, m.Name, m.Memory, blockSize, gpu.ErrInvalidValue)
		}
	}
	return nil
}
