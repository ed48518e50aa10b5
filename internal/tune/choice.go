package tune

import (
	"sync/atomic"
	"time"
)

// A Method is one of the two methods of a Choice.
type Method uint8

const (
	Default Method = iota // used until the other one is known to be faster
	Alternative
)

const (
	// exploreShare is the fraction of bytes, 1 in exploreShare, that the slower
	// method may get.
	exploreShare = 100
	// spikeLimit is how many times the average a single observation may count: a
	// disk has hiccups.
	spikeLimit = 4
)

// A Choice selects the faster of two methods from the times of transfers that
// happen anyway. Its zero value is ready to use. It is safe for concurrent use; of
// two observations made at the same time one may be lost.
type Choice struct {
	seen     atomic.Int64     // bytes picked so far
	explored atomic.Int64     // of which were given to the slower method
	cost     [2]atomic.Uint64 // nanoseconds per MiB, moving average; 0 if unknown
}

// Pick selects the method for a transfer of n bytes.
func (c *Choice) Pick(n int64) Method {
	faster := c.Faster()
	before := c.seen.Add(n) - n
	if c.explored.Load()+n > before/exploreShare {
		return faster
	}
	c.explored.Add(n)
	return 1 - faster
}

// Faster is the method that Pick returns when it does not explore.
func (c *Choice) Faster() Method {
	d, a := c.cost[Default].Load(), c.cost[Alternative].Load()
	if a != 0 && d != 0 && a < d {
		return Alternative
	}
	return Default
}

// Add records that n bytes took so long with a method.
func (c *Choice) Add(m Method, n int64, took time.Duration) {
	if n <= 0 || took <= 0 {
		return
	}
	now := max(uint64(float64(took)/float64(n)*(1<<20)), 1)
	mean := c.cost[m].Load()
	if mean == 0 {
		c.cost[m].Store(now)
		return
	}
	c.cost[m].Store(max(mean-mean/averageOver+min(now, spikeLimit*mean)/averageOver, 1))
}
