package cufile

import "fmt"

// A Config changes how a driver works. A zero field keeps Culvert's own choice.
type Config struct {
	// BatchSize is the most requests that a batch holds, up to MaxBatchSize.
	BatchSize int
}

// Configure sets the configuration of a closed driver, from its next open on.
func (d *Driver) Configure(c Config) error {
	if err := c.check(); err != nil {
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

func (c *Config) check() error {
	if c.BatchSize < 0 || c.BatchSize > MaxBatchSize {
		return fmt.Errorf("batch size %d must be from 1 to %d", c.BatchSize, MaxBatchSize)
	}
	return nil
}

func (c *Config) batchSize() int {
	if c.BatchSize == 0 {
		return DefaultBatchSize
	}
	return c.BatchSize
}
