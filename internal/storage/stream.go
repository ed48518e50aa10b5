package storage

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/culvert-io/culvert/route"
)

// A Stream is how one open file is read over staged routes, as far as the page cache
// is concerned. It collects the facts for the policy and counts what was done. Its
// zero value is a file opened with O_DIRECT. It is safe for concurrent use.
type Stream struct {
	buffered  bool // opened without O_DIRECT
	noBypass  bool // there is no descriptor with O_DIRECT
	uncached  bool // plain reads go around the page cache, too
	size      func() (int64, error)
	available func() int64
	rates     *coldRates
	mapped    func(off, n int64) (MappedRange, bool) // nil: not to be mapped

	mode  atomic.Uint32 // a route.CacheMode
	total atomic.Int64  // bytes that the caller says it will read; 0: the file
	read  atomic.Int64
	asked atomic.Int64 // bytes that were missing when they were asked for, and are not counted yet
	// lacked counts the bytes that were missing when they were asked for, ever.
	lacked atomic.Int64
	ahead  readAhead
	behind sync.WaitGroup // what is asked for behind requests
	pass   *firstPass

	anyDeferred atomic.Bool
	deferredMu  sync.Mutex
	deferred    []Range
}

// NewStream returns the stream of a file that was opened without O_DIRECT. available
// replaces the memory of the machine; nil does not.
func NewStream(size func() (int64, error), available func() int64) *Stream {
	s := new(Stream)
	s.init(true, true, size, "")
	s.pass = new(firstPass)
	if available != nil {
		s.available = available
	}
	return s
}

// Reopened returns the stream of another open of the same file, as NewStream.
func (s *Stream) Reopened() *Stream {
	t := NewStream(s.size, s.available)
	t.rates, t.pass = s.rates, s.pass
	return t
}

func (s *Stream) init(buffered, canBypass bool, size func() (int64, error), dev string) {
	s.buffered, s.noBypass, s.size = buffered, !canBypass, size
	s.available, s.rates = machineMemory.available, ratesOf(dev)
}

// SetMode sets how reads use the page cache, and how many bytes the caller is going
// to read, of this file and others; 0 is all of this file.
func (s *Stream) SetMode(m route.CacheMode, total int64) {
	s.mode.Store(uint32(m))
	s.total.Store(total)
}

// Uncached reports that plain reads do not use the page cache. What it has of the file is
// no hit, and nothing is asked for ahead.
func (s *Stream) Uncached() bool { return s.uncached && s.buffered }

// FillsNothing reports that reads must not fill the page cache.
func (s *Stream) FillsNothing() bool {
	return !s.buffered || route.CacheMode(s.mode.Load()) == route.CacheAvoid
}

// Reason says why reads must not fill the page cache.
func (s *Stream) Reason() string {
	switch {
	case !s.buffered:
		return OpenedDirect
	case s.FillsNothing():
		return AskedToAvoid
	}
	return NotBypassed
}

// Path chooses how to read [off, off+n), of which the page cache has r.
func (s *Stream) Path(off, n int64, r Residency, known bool) (Path, string) {
	at := s.situation()
	at.Known, at.Residency, at.InFront = known, r, s.ahead.inFront(off, n)
	return at.Path()
}

// situation is what the policy knows of all ranges.
func (s *Stream) situation() Situation {
	at := Situation{
		Mode: route.CacheMode(s.mode.Load()), Direct: !s.buffered, CanBypass: !s.noBypass,
		Stream: s.length(), Read: s.read.Load(), Filled: s.lacked.Load(), Available: -1,
	}
	if s.buffered {
		at.Available = s.available()
		at.DirectRate, at.FillRate = s.rates.direct.get(), s.rates.fill.get()
		at.Again = s.pass.over()
	}
	return at
}

// Measure reports that a read of n bytes, which begins now, goes around the cache to learn
// how fast the storage is without it. Those of which the cache has a part go, too: the kernel's
// own readahead is in front of every reader that fills it. Nothing is asked for ahead
// meanwhile.
func (s *Stream) Measure(n int64, now time.Time) bool {
	return n >= measureLen && s.lacked.Load() >= comparedLen/2 && !s.noBypass && s.rates.measuring() &&
		route.CacheMode(s.mode.Load()) == route.CacheAuto && s.length()-s.read.Load() >= measureLeft && !s.pass.over() &&
		s.rates.measure(n, now)
}

// WentAround notes a range that goes around the cache although it fits.
func (s *Stream) WentAround(off, n int64) { s.pass.around(off, n) }

// Defer notes a range that went around the cache only to measure the storage, and is to
// be in the cache.
func (s *Stream) Defer(r Range) {
	s.deferredMu.Lock()
	defer s.deferredMu.Unlock()
	s.deferred = append(s.deferred, r)
	s.anyDeferred.Store(true)
}

// Deferred returns those ranges, once, when all reads of the measurement have begun and
// the rest of the stream fills the cache: later reads must find these there, too.
func (s *Stream) Deferred() (rs []Range) {
	if !s.anyDeferred.Load() || s.rates.measuring() && !s.pass.over() {
		return nil
	}
	s.deferredMu.Lock()
	defer s.deferredMu.Unlock()
	rs, s.deferred = s.deferred, nil
	s.anyDeferred.Store(false)
	return rs
}

// length is how many bytes the caller is going to read.
func (s *Stream) length() int64 {
	if n := s.total.Load(); n > 0 {
		return n
	}
	if s.size == nil {
		return math.MaxInt64
	}
	n, err := s.size()
	if err != nil {
		return math.MaxInt64
	}
	return n
}

// Ahead returns the range to ask the kernel for before [off, off+n) is read through
// the page cache; empty for none, and otherwise given to Ask. req is the request
// that contains it. cold reports that the cache lacked some of it, and missing counts
// the bytes that it lacks of any range, -1 if unknown; lacks are those of the range.
func (s *Stream) Ahead(off, n int64, req Range, cold bool, missing func(from, to int64) int64) (from, to, lacks int64) {
	if s.FillsNothing() && !s.noBypass || s.size == nil || s.uncached {
		return 0, 0, 0
	}
	if at := s.situation(); at.passesBy() {
		return 0, 0, 0
	}
	size, err := s.size()
	if err != nil {
		return 0, 0, 0
	}
	from, to, lacks = s.ahead.next(off, n, req, size, cold, missing)
	s.asked.Add(lacks)
	s.lacked.Add(lacks)
	return from, to, lacks
}

const (
	// adviceLen is how much the kernel is asked for at a time: it reads no more than the
	// larger of the device's longest request and its readahead, and says nothing.
	adviceLen = 512 << 10
	// fetchLen is the length from which a range is fetched: two huge pages, which one
	// fault reads.
	fetchLen = 2 * hugePage
)

// Ask asks for the range that Ahead returned, and reports whether there was any. A long
// one is fetched, if there is a fetch and that is possible. Others are passed to
// willNeed, piece by piece, which does not wait.
func (s *Stream) Ask(from, to int64, fetch, willNeed func(off, n int64) error) bool {
	if from == to {
		return false
	}
	defer s.ahead.done(from, to)
	if fetch != nil && to-from >= fetchLen && fetch(from, to-from) == nil {
		return true
	}
	for at := from; at < to; at += adviceLen {
		if willNeed(at, min(adviceLen, to-at)) != nil {
			break // the read itself finds what is wrong
		}
	}
	return true
}

// AskBehind does what Ask does, without waiting: for a range behind the end of the
// request, which the reader does not need yet. lacks are the bytes that the cache lacks
// of it.
func (s *Stream) AskBehind(from, to, lacks int64, fetch, willNeed func(off, n int64) error) {
	s.behind.Go(func() {
		began := time.Now()
		s.Ask(from, to, fetch, willNeed)
		s.Observe(Fill, lacks, began, time.Now())
	})
}

// Wait waits for what AskBehind began. It must follow the last read, and precede the end
// of the descriptors.
func (s *Stream) Wait() { s.behind.Wait() }

// Count fills a receipt's count for a finished read: through bytes went through the
// page cache with its contents known. Bytes that were missing when they were asked
// for count as filled, by the reads that follow.
func (s *Stream) Count(use *route.CacheUse, through int64) {
	filled := min(s.asked.Load(), through)
	if filled > 0 && s.asked.Add(-filled) < 0 { // another read took them
		s.asked.Add(filled)
		filled = 0
	}
	use.Filled += filled
	use.Hit += through - filled
	s.read.Add(through + use.Bypassed + use.Unasked)
}

// Observe records that a thread read from began to ended, on such a path, and that n
// bytes came from storage for it: those that it read around the cache, or those that it
// asked for to fill it. Only streams that choose between the two count.
func (s *Stream) Observe(p Path, n int64, began, ended time.Time) {
	if s.rates == nil || !s.buffered || route.CacheMode(s.mode.Load()) != route.CacheAuto {
		return
	}
	s.rates.observe(p, n, began, ended)
}
