package tune

import (
	"cmp"
	"sync/atomic"
	"time"
)

// A Method is one of the two methods of a Choice.
type Method uint8

const (
	Default Method = iota // used until the other one is known to be faster
	Alternative
)

// exploreShare is the fraction of bytes, 1 in exploreShare, that a slower method may
// get.
const exploreShare = 100

// An Explorer limits how many bytes are given to a method that looks slower, to see
// whether it still is: at most 1 %, and none of the first transfers. Its zero value
// is ready to use, by several goroutines.
type Explorer struct {
	seen     atomic.Int64
	explored atomic.Int64
}

// Try counts a transfer of n bytes and reports whether the slower method may have it.
func (e *Explorer) Try(n int64) bool {
	limit := (e.seen.Add(n) - n) / exploreShare
	if e.explored.Load()+n > limit {
		return false
	}
	if e.explored.Add(n) > limit { // another transfer took the bytes
		e.explored.Add(-n)
		return false
	}
	return true
}

// spikeLimit is how many times the average a single observation may count: a disk
// has hiccups.
const spikeLimit = 4

// earlyEvery is which of the first transfers are early ones.
const earlyEvery = 8

// A Choice selects the faster of two methods from the times of transfers that
// happen anyway. Its zero value is ready to use. It is safe for concurrent use; of
// two observations made at the same time one may be lost.
type Choice struct {
	// Early is how many transfers, every eighth of the first, try the other method
	// beyond the 1 %: for defaults that are guesses.
	Early   int64
	picks   atomic.Int64
	explore Explorer
	cost    [2]atomic.Uint64 // nanoseconds per MiB, moving average; 0 if unknown
}

// Pick selects the method for a transfer of n bytes.
func (c *Choice) Pick(n int64) Method {
	if c.early() || c.explore.Try(n) {
		return 1 - c.Faster()
	}
	return c.Faster()
}

func (c *Choice) early() bool {
	if c.Early == 0 {
		return false
	}
	k := c.picks.Add(1)
	return k%earlyEvery == 0 && k <= earlyEvery*c.Early
}

// Faster is the method that Pick returns when it does not explore.
func (c *Choice) Faster() Method {
	d, a := c.cost[Default].Load(), c.cost[Alternative].Load()
	if a != 0 && d != 0 && a < d {
		return Alternative
	}
	return Default
}

// Add records that n bytes took so long with a method, and reports whether another
// method is the faster one now.
func (c *Choice) Add(m Method, n int64, took time.Duration) (changed bool) {
	if n <= 0 || took <= 0 {
		return false
	}
	before := c.Faster()
	now := max(uint64(float64(took)/float64(n)*(1<<20)), 1)
	mean := cmp.Or(c.cost[m].Load(), now)
	c.cost[m].Store(max(mean-mean/averageOver+min(now, spikeLimit*mean)/averageOver, 1))
	return c.Faster() != before
}
