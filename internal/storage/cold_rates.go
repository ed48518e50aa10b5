package storage

import (
	"math"
	"sync"
	"time"
)

const (
	// rateWindow is how many bytes make one observation of a rate.
	rateWindow = 128 << 20
	// startLen is how many bytes do not count at first: meanwhile memory is pinned and
	// threads are started, and the storage waits for both.
	startLen = 96 << 20
	// comparedLen is how many bytes go around the cache to compare: these must be read
	// again if filling goes on.
	comparedLen = 64 << 20
	// A comparison takes reads of at least measureLen, and is made only if the stream has
	// so much left.
	measureLen  = 1 << 20
	measureLeft = 4 * comparedLen
	// patience is how many times as long as filling a comparison may take. While other
	// threads still fill, each of its reads is slow.
	patience = 2
)

// coldRates compare two ways to read what is not in the page cache of a device: around
// the cache, and by filling it.
type coldRates struct {
	direct, fill windowRate
	comparison   comparison
}

func newColdRates() *coldRates {
	return &coldRates{direct: windowRate{skip: startLen}, fill: windowRate{skip: startLen}}
}

// measuring reports that one window was filled, and the reads of none around the cache
// have begun yet.
func (r *coldRates) measuring() bool {
	return r.fill.get() > 0 && r.direct.get() == 0 && r.comparison.room()
}

// measure takes a read of n bytes that begins now into the window around the cache, if
// there is room.
func (r *coldRates) measure(n int64, now time.Time) bool {
	return r.measuring() && r.comparison.begin(n, now)
}

// observe records n bytes of a read that has just ended.
func (r *coldRates) observe(p Path, n int64, began, ended time.Time) {
	if p != Around && p != Fill {
		return
	}
	most := time.Duration(math.MaxInt64)
	if fill := r.fill.get(); fill > 0 {
		most = time.Duration(patience * comparedLen / fill * float64(time.Second))
	}
	taken, rate := r.comparison.observe(p, n, began, ended, most)
	switch {
	case rate > 0:
		r.direct.set(rate)
		r.fill.restart(mostCompared) // while it also fetches what was compared
	case taken:
	case p == Around:
		r.direct.add(n, began, ended)
	case p == Fill:
		r.fill.add(n, began, ended)
	}
}

// A span is bytes of all threads together, and the time in which at least one of them was
// reading. The rate of a single thread would say nothing about a disk that is busy with the
// requests of the others.
type span struct {
	bytes int64
	busy  time.Duration
	upTo  time.Time // busy was counted up to here
}

func (s *span) add(n int64, began, ended time.Time) {
	if began.Before(s.upTo) {
		began = s.upTo
	}
	if ended.After(began) {
		s.busy += ended.Sub(began)
		s.upTo = ended
	}
	s.bytes += n
}

// rate is 0 if there is none.
func (s *span) rate() float64 {
	if s.busy == 0 {
		return 0
	}
	return float64(s.bytes) / s.busy.Seconds()
}

// A windowRate is the rate in the last windows.
type windowRate struct {
	mu     sync.Mutex
	skip   int64 // bytes that are still to come before a window begins
	window span
	rate   float64 // bytes per second; 0 before the first window has ended
}

func (w *windowRate) get() float64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rate
}

func (w *windowRate) set(rate float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rate, w.window = rate, span{upTo: w.window.upTo}
}

// restart begins a new window after n bytes.
func (w *windowRate) restart(n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.skip, w.window = n, span{upTo: w.window.upTo}
}

// add records n bytes of a read that has just ended. The window ends after rateWindow
// bytes.
func (w *windowRate) add(n int64, began, ended time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.skip > 0 {
		w.skip -= n
		w.window.upTo = latest(w.window.upTo, ended)
		return
	}
	w.window.add(n, began, ended)
	now := w.window.rate()
	if w.window.bytes < rateWindow || now == 0 {
		return
	}
	if w.rate > 0 {
		// Two windows count: a virtual machine may run out of the memory that its host
		// has given it, and from then on filling takes four times as long.
		now = (w.rate + now) / 2
	}
	w.rate, w.window = now, span{upTo: w.window.upTo}
}

// since is how many of n bytes were read since a time.
func since(from time.Time, n int64, began, ended time.Time) int64 {
	if !began.Before(from) {
		return n
	}
	return int64(float64(n) * float64(ended.Sub(from)) / float64(ended.Sub(began)))
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// A comparison is the time in which some reads go around the cache, to learn how fast the
// storage is if the cache need not be filled. At its beginning other threads are still
// filling it, so the rate is that of all bytes that come from the storage meanwhile.
type comparison struct {
	mu     sync.Mutex
	from   time.Time // its first read began
	begun  int64     // bytes of its reads
	around int64     // bytes of those that have ended
	all    span      // of these, and of what was filled meanwhile
	sure   span      // all, when the last of its reads ended
	last   time.Time // one of its reads began or ended
	first  time.Time // the first of them ended
	until  time.Time // zero before it is over
}

const (
	// pauseLen is how long none of a comparison's reads may be on its way: then its reader
	// has stopped, and what is filled until another one goes on with it says nothing.
	pauseLen = 100 * time.Millisecond
	// lostLen is the same if some have begun but did not end, as reads that fail.
	lostLen = time.Second
)

// pausedLocked reports whether the readers had stopped at a time.
func (c *comparison) pausedLocked(at time.Time) bool {
	since := at.Sub(c.last)
	return since > lostLen || since > pauseLen && c.around >= c.begun
}

// mostCompared is how many bytes of a comparison may begin. The storage must not become
// idle, nor begin to fill the cache again, before comparedLen bytes have arrived.
const mostCompared = comparedLen * 3 / 2

// room reports whether more of its reads may begin.
func (c *comparison) room() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.roomLocked()
}

func (c *comparison) roomLocked() bool { return c.begun < mostCompared && c.until.IsZero() }

// begin takes a read of n bytes, until they are enough.
func (c *comparison) begin(n int64, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.roomLocked() {
		return false
	}
	if c.begun == 0 || c.pausedLocked(now) {
		c.from, c.all = now, c.sure
	}
	c.begun += n
	c.last = latest(c.last, now)
	return true
}

// observe records a read that has just ended, and reports whether it belongs to the time of
// the comparison. If that is over now, it returns the rate. It also ends after most: the
// storage has lost by then, and one reader with small requests would take ten times as long.
// Reads that began together with the first one do not end it, for as many bytes may be on
// their way as are compared.
func (c *comparison) observe(p Path, n int64, began, ended time.Time, most time.Duration) (taken bool, rate float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	over := !c.until.IsZero()
	switch {
	case c.begun == 0 || !ended.After(c.from):
		return false, 0
	case over:
		return p == Fill && began.Before(c.until), 0
	case p == Fill && c.pausedLocked(began):
		return false, 0
	}
	c.all.add(since(c.from, n, began, ended), latest(c.from, began), ended)
	if p == Fill {
		return true, 0
	}
	c.around += n
	c.sure, c.last = c.all, latest(c.last, ended)
	if c.first.IsZero() {
		c.first = ended
	}
	late := !began.Before(c.first)
	if c.around < comparedLen && (c.all.busy < most || !late) {
		return true, 0
	}
	c.until = ended
	return true, c.all.rate()
}

var deviceRates sync.Map // of device numbers, to *coldRates

func ratesOf(dev string) *coldRates {
	if dev == "" {
		return newColdRates()
	}
	r, _ := deviceRates.LoadOrStore(dev, newColdRates())
	return r.(*coldRates)
}
