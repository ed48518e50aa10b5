package tune

import (
	"math"
	"sync/atomic"
	"time"
)

// averageOver is the number of observations that a moving average covers.
const averageOver = 8

// A Rate is a moving average of bytes per second. It is safe for concurrent use;
// of two observations made at the same time one may be lost.
type Rate struct{ bits atomic.Uint64 }

// Add records that n bytes took so long.
func (r *Rate) Add(n int64, took time.Duration) {
	if n <= 0 || took <= 0 {
		return
	}
	now := float64(n) / took.Seconds()
	if old := math.Float64frombits(r.bits.Load()); old > 0 {
		now = old + (now-old)/averageOver
	}
	r.bits.Store(math.Float64bits(now))
}

// Get returns the average, or initial if nothing was recorded.
func (r *Rate) Get(initial float64) float64 {
	if v := math.Float64frombits(r.bits.Load()); v > 0 {
		return v
	}
	return initial
}
