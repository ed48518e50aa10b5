package ring

import (
	"sync/atomic"
	"time"
)

// A contest is between two ways to do the same thing: the one that takes less time
// is used, and the other is tried now and then.
type adaptive struct {
	turns atomic.Uint32
	took  [2]atomic.Uint64 // nanoseconds for 1 MiB: running means
}

const (
	// contestFirst is how many turns are shared evenly, and contestEvery how seldom
	// the worse way gets one afterwards.
	adaptiveFirst = 8
	adaptiveEvery = 16
	// contestWeight is how many turns a mean goes over, and contestMost how much
	// more than the mean one of them counts: a disk has hiccups.
	adaptiveWeight = 8
	adaptiveMost   = 4
)

// pick chooses a way.
func (c *adaptive) pick() int {
	n := c.turns.Add(1) - 1
	if n < adaptiveFirst {
		return int(n % 2)
	}
	better := 0
	if c.took[1].Load() < c.took[0].Load() {
		better = 1
	}
	if n%adaptiveEvery == 0 {
		return 1 - better
	}
	return better
}

// add tells how long a way took. Those who add at the same time may lose one, which
// does no harm.
func (c *adaptive) add(way int, bytes int64, took time.Duration) {
	if bytes <= 0 {
		return
	}
	now := uint64(float64(took) / float64(bytes) * (1 << 20))
	mean := c.took[way].Load()
	if mean == 0 {
		c.took[way].Store(now)
		return
	}
	c.took[way].Store(mean - mean/adaptiveWeight + min(now, adaptiveMost*mean)/adaptiveWeight)
}
