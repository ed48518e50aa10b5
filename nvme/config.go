package nvme

import (
	"cmp"
	"fmt"
	"time"
)

// A Config has the parameters of the driver. Zero values mean the defaults.
type Config struct {
	Queues      int           // queue pairs that Read and Write share (default 2)
	Depth       int           // commands in flight in each of them (default 63)
	MaxTransfer int           // largest command in bytes; the controller may limit it further (default 1 MiB)
	Timeout     time.Duration // until a command is aborted; after twice that the controller is reset (default 30 s)
	Poll        bool          // do not use interrupts
}

const (
	defaultQueues   = 2
	defaultDepth    = 63 // a submission queue of one page
	defaultTransfer = 1 << 20
	defaultTimeout  = 30 * time.Second

	maxDepth    = 1<<slotBits - 1
	maxTransfer = 64 << 20
)

func (c Config) withDefaults() (Config, error) {
	c.Queues = cmp.Or(c.Queues, defaultQueues)
	c.Depth = cmp.Or(c.Depth, defaultDepth)
	c.MaxTransfer = cmp.Or(c.MaxTransfer, defaultTransfer)
	c.Timeout = cmp.Or(c.Timeout, defaultTimeout)
	switch {
	case c.Queues < 0:
		return c, fmt.Errorf("%d queues: must not be negative", c.Queues)
	case c.Depth < 1 || c.Depth > maxDepth:
		return c, fmt.Errorf("queue depth %d must be 1 to %d", c.Depth, maxDepth)
	case c.MaxTransfer < pageSize || c.MaxTransfer%pageSize != 0 || c.MaxTransfer > maxTransfer:
		return c, fmt.Errorf("transfer size %d must be a multiple of %d, at most %d", c.MaxTransfer, pageSize, maxTransfer)
	case c.Timeout < 0:
		return c, fmt.Errorf("timeout %v: must not be negative", c.Timeout)
	}
	return c, nil
}
