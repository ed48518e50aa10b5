package fetch

import (
	"sync"
	"time"
)

// latency is the time until a store answers, as TCP estimates round trips: a mean and
// a mean deviation. It also has the rate of bodies.
type latency struct {
	mu        sync.Mutex
	known     bool
	mean, dev time.Duration
	least     time.Duration // of any answer; 0 if there was none
	rate      float64       // bytes per second of one body
}

const (
	firstSlow = time.Second // before anything is known
	minSlow   = 50 * time.Millisecond
	maxSlow   = 5 * time.Second
)

// answered adds the time of one answer.
func (l *latency) answered(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leastLocked(d)
	if !l.known {
		l.known, l.mean, l.dev = true, d, d/2
		return
	}
	diff := d - l.mean
	l.mean += diff / 8
	l.dev += (max(diff, -diff) - l.dev) / 4
}

// answeredOther adds the time of a request that was not a read. It may have included
// the making of a connection.
func (l *latency) answeredOther(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leastLocked(d)
}

func (l *latency) leastLocked(d time.Duration) {
	if d = max(d, 1); l.least == 0 || d < l.least {
		l.least = d
	}
}

// moved adds the rate of one body.
func (l *latency) moved(n int, d time.Duration) {
	if n < 64<<10 || d <= 0 {
		return
	}
	r := float64(n) / d.Seconds()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rate == 0 {
		l.rate = r
	}
	l.rate += (r - l.rate) / 8
}

// fastest is the shortest time of an answer, which does not depend on how busy this host
// is; 0 if unknown.
func (l *latency) fastest() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.least
}

// slow is how long a request may bring nothing before it is slow.
func (l *latency) slow() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.known {
		return firstSlow
	}
	return min(max(l.mean+4*l.dev, minSlow), maxSlow)
}

// expects is how many bytes a body brings in a time; 0 if unknown.
func (l *latency) expects(d time.Duration) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int64(l.rate * d.Seconds())
}

// parts learns into how many parts reads are cut: it doubles or halves the number and
// keeps what made reads faster. What counts is the rate of all reads together, over
// the time in which there were any.
type parts struct {
	fixed int

	mu     sync.Mutex
	now    int     // the number in use
	step   int     // +1: changes double it, -1: they halve it
	trial  bool    // the last round was the first with this number
	tried  bool    // it was changed once
	best   float64 // rate before the last change
	calm   int     // rounds to go before the next change
	pause  int     // what calm was last
	active int     // reads in flight
	since  time.Time
	busy   time.Duration // with reads in flight, this round
	bytes  int64         // this round
}

const (
	maxParts   = 16
	firstParts = 4
	atOnce     = 8 * time.Millisecond
	roundBytes = 64 << 20 // of a round; it also takes roundTime at least
	roundTime  = 20 * time.Millisecond
	// minPause and maxPause are the rounds between two changes: it doubles with each
	// change that was undone.
	minPause = 2
	maxPause = 16
	// gainOfMore and lossOfFewer are what the rate must be, compared with that before,
	// for twice or half as many parts to stay.
	gainOfMore  = 1.15
	lossOfFewer = 0.95
)

// begin starts a read of n bytes and returns its number of parts.
// A store that answers at once, on this host or beside it, gains nothing by more
// requests than there are reads.
func (p *parts) begin(n, minPart int, answers time.Duration) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.active == 0 {
		p.since = time.Now()
	}
	p.active++
	k := p.fixed
	if k <= 0 {
		if !p.tried {
			p.now = firstParts
			if answers > 0 && answers < atOnce {
				p.now = 1
			}
		}
		k = p.now
	}
	return max(min(k, n/max(minPart, 1)), 1)
}

// end ends a read.
func (p *parts) end(n int, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.active--
	now := time.Now()
	p.busy += now.Sub(p.since)
	p.since = now
	if ok {
		p.bytes += int64(n)
	}
	if p.fixed <= 0 && p.bytes >= roundBytes && p.busy >= roundTime {
		p.round(float64(p.bytes) / p.busy.Seconds())
		p.bytes, p.busy = 0, 0
	}
}

// round looks at the rate of a round and changes the number of parts. Requests cost
// both ends something: more of them must gain much, fewer may lose a little.
func (p *parts) round(rate float64) {
	least := gainOfMore
	if p.step < 0 {
		least = lossOfFewer
	}
	switch {
	case p.trial && rate > p.best*least:
		p.try(rate)
	case p.trial:
		p.now = p.moved(-p.step)
		p.turn()
	case p.calm > 0:
		p.calm--
		p.best = max(p.best, rate)
	default:
		p.try(max(p.best, rate))
	}
}

// try changes the number. rate is what the next round is compared with.
func (p *parts) try(rate float64) {
	next := p.moved(p.step)
	if next == p.now { // at a border
		p.turn()
		return
	}
	p.now, p.best, p.trial, p.tried = next, rate, true, true
}

// turn makes the next change one in the other direction, after a while.
func (p *parts) turn() {
	p.pause = min(max(2*p.pause, minPause), maxPause)
	p.step, p.calm, p.best, p.trial = -p.step, p.pause, 0, false
}

func (p *parts) moved(step int) int {
	if step > 0 {
		return min(p.now*2, maxParts)
	}
	return max(p.now/2, 1)
}
