package ring

import (
	"sync/atomic"
	"time"
)

// A pace is how fast one hand reads while the others do, in bytes per second: a
// running mean over the last pieces.
type rate struct{ bytesPerSecond atomic.Uint64 }

const (
	// firstPace is what a core reads from the page cache where nothing is known.
	firstRate = 5_000_000_000
	// paceWeight is how many pieces the mean goes over. Hands that count at the
	// same time may lose one of them, which does no harm.
	rateWeight = 8
	// paceLen is the size from which a piece tells anything.
	rateLen = 1 << 20
)

func (p *rate) add(n int, took time.Duration) {
	if n < rateLen || took <= 0 {
		return
	}
	now := uint64(float64(n) / took.Seconds())
	p.bytesPerSecond.Store(p.get() - p.get()/rateWeight + now/rateWeight)
}

func (p *rate) get() uint64 {
	if r := p.bytesPerSecond.Load(); r > 0 {
		return r
	}
	return firstRate
}

// linkShare is what of its nominal rate a PCIe link carries.
const linkShare = 0.88

// handsLocked is how many threads should be at work: as many as fill the link at
// the pace at which they read. More would only wait for each other's copies and
// for memory, and burn processor time doing so. Callers at work with a lane of
// their own count, but are never turned away.
func (r *Ring) workerTargetLocked() int {
	most := min(r.limit, r.sizing.workers)
	if r.sizing.link == 0 {
		return most
	}
	// One more, so that there is always one who is not waiting.
	fill := int(linkShare*float64(r.sizing.link)/float64(r.readRate.get())) + 2
	return min(max(fill, minWorkers), most)
}

// spareLocked is how many more hands would do good.
func (r *Ring) spareWorkersLocked() int {
	used := r.pipelines - len(r.free)
	return min(max(r.workerTargetLocked()-used, 0), r.freePipelinesLocked())
}

// vacantLocked is how many lanes nobody uses, made or not.
func (r *Ring) freePipelinesLocked() int { return len(r.free) + r.limit - r.pipelines }

// wantedLocked reports whether a helper should take a lane.
func (r *Ring) workerNeededLocked() bool {
	if len(r.active) == 0 {
		return false
	}
	return r.spareWorkersLocked() > 0 || r.freePipelinesLocked() > 0 && r.waitingCallerLocked()
}

// unattendedLocked reports whether there is an op whose caller found no lane.
func (r *Ring) waitingCallerLocked() bool {
	for _, o := range r.active {
		if !o.hasCaller {
			return true
		}
	}
	return false
}
