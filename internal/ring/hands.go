package ring

import (
	"sync/atomic"
	"time"
)

// A pace is how fast one hand reads while the others do, in bytes per second: a
// running mean over the last pieces.
type pace struct{ rate atomic.Uint64 }

const (
	// firstPace is what a core reads from the page cache where nothing is known.
	firstPace = 5_000_000_000
	// paceWeight is how many pieces the mean goes over. Hands that count at the
	// same time may lose one of them, which does no harm.
	paceWeight = 8
	// paceLen is the size from which a piece tells anything.
	paceLen = 1 << 20
)

func (p *pace) add(n int, took time.Duration) {
	if n < paceLen || took <= 0 {
		return
	}
	now := uint64(float64(n) / took.Seconds())
	p.rate.Store(p.get() - p.get()/paceWeight + now/paceWeight)
}

func (p *pace) get() uint64 {
	if r := p.rate.Load(); r > 0 {
		return r
	}
	return firstPace
}

// linkShare is what of its nominal rate a PCIe link carries.
const linkShare = 0.88

// handsLocked is how many threads should be at work: as many as fill the link at
// the pace at which they read. More would only wait for each other's copies and
// for memory, and burn processor time doing so. Callers at work with a lane of
// their own count, but are never turned away.
func (r *Ring) handsLocked() int {
	most := min(r.limit, r.plan.hands)
	if r.plan.link == 0 {
		return most
	}
	// One more, so that there is always one who is not waiting.
	fill := int(linkShare*float64(r.plan.link)/float64(r.pace.get())) + 2
	return min(max(fill, minWorkers), most)
}

// spareLocked is how many more hands would do good.
func (r *Ring) spareLocked() int {
	used := r.lanes - len(r.free)
	return min(max(r.handsLocked()-used, 0), r.vacantLocked())
}

// vacantLocked is how many lanes nobody uses, made or not.
func (r *Ring) vacantLocked() int { return len(r.free) + r.limit - r.lanes }

// wantedLocked reports whether a helper should take a lane.
func (r *Ring) wantedLocked() bool {
	if len(r.active) == 0 {
		return false
	}
	return r.spareLocked() > 0 || r.vacantLocked() > 0 && r.unattendedLocked()
}

// unattendedLocked reports whether there is an op whose caller found no lane.
func (r *Ring) unattendedLocked() bool {
	for _, o := range r.active {
		if !o.attended {
			return true
		}
	}
	return false
}
