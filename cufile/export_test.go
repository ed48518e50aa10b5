package cufile

import "time"

// SetCheckInterval changes how old a result CheckAllocatedCached may use, and returns
// what restores it.
func SetCheckInterval(d time.Duration) (restore func()) {
	old := checkInterval
	checkInterval = d
	return func() { checkInterval = old }
}

// Tests check at once, except for those that set an interval.
func init() { checkInterval = 0 }

// WithoutWorkers keeps a batch from starting goroutines.
func WithoutWorkers(b *Batch) { b.workers = batchWorkers }
