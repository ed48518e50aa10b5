package nvme

import (
	"fmt"
	"time"
)

// A Config says how to drive a controller. Zero values mean the defaults.
type Config struct {
	Queues      int           // queue pairs that Read and Write share: 2
	Depth       int           // commands in flight in each of them: 63
	MaxTransfer int           // bytes of one command, at most; the controller may want less: 1 MiB
	Timeout     time.Duration // after which a command is aborted; after twice that the controller is reset: 30 s
	Poll        bool          // do not use interrupts
}

const (
	defaultQueues   = 2
	defaultDepth    = 63 // whose commands fill a page
	defaultTransfer = 1 << 20
	defaultTimeout  = 30 * time.Second

	maxDepth    = 1<<slotBits - 1
	maxTransfer = 64 << 20
)

func (c Config) withDefaults() (Config, error) {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&c.Queues, defaultQueues)
	def(&c.Depth, defaultDepth)
	def(&c.MaxTransfer, defaultTransfer)
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	switch {
	case c.Queues < 0:
		return c, fmt.Errorf("%d queues", c.Queues)
	case c.Depth < 1 || c.Depth > maxDepth:
		return c, fmt.Errorf("depth %d: want 1 to %d", c.Depth, maxDepth)
	case c.MaxTransfer < pageSize || c.MaxTransfer%pageSize != 0 || c.MaxTransfer > maxTransfer:
		return c, fmt.Errorf("transfers of %d bytes: want a multiple of %d up to %d", c.MaxTransfer, pageSize, maxTransfer)
	case c.Timeout < 0:
		return c, fmt.Errorf("timeout %v", c.Timeout)
	}
	return c, nil
}
