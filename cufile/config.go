package cufile

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/culvert-io/culvert/internal/ladder"
	"github.com/culvert-io/culvert/route"
)

// A Config changes how a driver works. A zero field keeps Culvert's own choice.
type Config struct {
	// BatchSize is the most requests that a batch holds, up to MaxBatchSize.
	BatchSize int
	// PinnedBudget limits the host memory that the ring of a GPU pins, in bytes.
	PinnedBudget int64
	// SlotSize is the largest chunk of the ring in bytes: a multiple of 4096, at least
	// 64 KiB.
	SlotSize int
	// Workers is the number of chunks that the ring of a GPU works on at a time.
	Workers int
	// BARLimit limits the GPU memory that BAR1 mappings of registered buffers use, in
	// bytes. A buffer that does not fit takes other routes.
	BARLimit uint64
	// PollSize makes the ring poll for the completions of requests of up to so many bytes:
	// for copies to and from the GPU, and for reads with O_DIRECT of up to 128 KiB. What
	// takes longer than 200 us, and larger requests, are left to the GPU driver and the
	// kernel. Zero does what is faster.
	PollSize int64
	// DirectOnly refuses transfers between files and GPUs that need a staged route:
	// ring, mapped or host. File.Require overrides it for a file.
	DirectOnly bool
	// StagedOnly uses no other routes than these three.
	StagedOnly bool
	// Denylist names files to which StagedOnly applies.
	Denylist Denylist
	// ODirect treats files as opened with O_DIRECT where their file system supports it.
	ODirect bool
}

// Configure sets the configuration of a closed driver, from its next open on.
func (d *Driver) Configure(c Config) error {
	if err := c.Check(); err != nil {
		return &Error{Op: "configure", Object: "driver", Code: DriverInvalidProps, Err: err}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.count > 0 || d.closing {
		return &Error{Op: "configure", Object: "driver", Code: DriverAlreadyOpen, Fix: "configure it before it is opened"}
	}
	d.config = c
	return nil
}

// SetLimits changes SlotSize, PollSize and BARLimit of an open driver to those of c: for
// transfers and for registrations of buffers that follow. Transfers in flight end with
// the old ones. With an error none or some GPUs have the new limits.
func (d *Driver) SetLimits(c Config) error {
	if err := c.Check(); err != nil {
		return &Error{Op: "limit", Object: "driver", Code: DriverInvalidProps, Err: err}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.count == 0 {
		return &Error{Op: "limit", Object: "driver", Code: DriverNotInitialized, Fix: "open it, or use Configure"}
	}
	for i, g := range d.gpus {
		if err := g.ladder.SetLimits(c.ladder()); err != nil {
			return &Error{Op: "limit", Object: gpuName(i), Code: NoMemError, Err: err, Fix: "choose a smaller size"}
		}
	}
	d.config.SlotSize, d.config.PollSize, d.config.BARLimit = c.SlotSize, c.PollSize, c.BARLimit
	return nil
}

// Check reports a value that is not possible.
func (c Config) Check() error {
	const page, minSlot = 4096, 64 << 10
	switch {
	case c.BatchSize < 0 || c.BatchSize > MaxBatchSize:
		return fmt.Errorf("batch size %d must be from 1 to %d", c.BatchSize, MaxBatchSize)
	case c.PinnedBudget < 0 || c.Workers < 0 || c.PollSize < 0:
		return fmt.Errorf("pinned budget %d, workers %d and poll size %d must not be negative", c.PinnedBudget, c.Workers, c.PollSize)
	case c.SlotSize != 0 && (c.SlotSize < minSlot || c.SlotSize%page != 0):
		return fmt.Errorf("slot size %d must be a multiple of %d, at least %d", c.SlotSize, page, minSlot)
	case c.DirectOnly && c.StagedOnly:
		return errors.New("DirectOnly and StagedOnly exclude each other")
	}
	return nil
}

// ladder is the part that concerns the routes of a GPU.
func (c *Config) ladder() ladder.Settings {
	return ladder.Settings{Budget: c.PinnedBudget, Slot: c.SlotSize, Workers: c.Workers, Poll: c.PollSize, BARLimit: c.BARLimit, StagedOnly: c.StagedOnly}
}

// requirement is the one of files that have none of their own.
func (c *Config) requirement() requirement {
	if c.DirectOnly {
		return requirement{route.Bar, true}
	}
	return requirement{}
}

func (c *Config) batchSize() int {
	return cmp.Or(c.BatchSize, DefaultBatchSize)
}
