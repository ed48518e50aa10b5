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
	// lacked counts the bytes that it has read into the cache, ever.
	lacked atomic.Int64
	found  atomic.Int64 // bytes that it had before this pass, until that has ended
	// fitsUntil is until when Spares takes it for granted that the stream fits, as
	// memoryGauge.expires.
	fitsUntil atomic.Int64
	ahead     readAhead
	behind    sync.WaitGroup // what is asked for behind requests
	pass      *firstPass

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
	s.fitsUntil.Store(0)
}

// Uncached reports that plain reads do not use the page cache. What it has of the file is
// no hit, and nothing is asked for ahead.
func (s *Stream) Uncached() bool { return s.uncached && s.buffered }

// FillsNothing reports that reads must not fill the page cache.
func (s *Stream) FillsNothing() bool {
	return !s.buffered || route.CacheMode(s.mode.Load()) == route.CacheAvoid
}

// SmallLen is the length up to which reads of a file that was opened plainly do not ask what
// the cache has: that would take as long as the read.
const SmallLen = 128 << 10

// Spares says why a read of n bytes must leave the page cache as it is, for routes that go
// through it or not at all; NotBypassed if it may fill it.
func (s *Stream) Spares(n int64) string {
	switch {
	case !s.buffered:
		return OpenedDirect
	case s.FillsNothing():
		return AskedToAvoid
	case n <= SmallLen || s.noBypass || route.CacheMode(s.mode.Load()) != route.CacheAuto:
		return NotBypassed
	}
	now := int64(time.Since(gaugeStart)) + 1
	if now < s.fitsUntil.Load() {
		return NotBypassed
	}
	if at := (Situation{Stream: s.length(), Available: s.available()}); !at.fits() {
		return TooLarge
	}
	s.fitsUntil.Store(now + int64(availableFor))
	return NotBypassed
}

// Path chooses how to read [off, off+n), of which the page cache has r.
func (s *Stream) Path(off, n int64, r Residency, known bool) (Path, string) {
	at := s.situation()
	at.Known, at.Residency, at.InFront = known, r, s.pass.aheadOnly(off, n)
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

// Found notes that the cache had n bytes of a range before this pass. If it had as much of
// the file as a pass leaves there that goes around it, somebody has read the file before,
// perhaps another process: this is no first pass.
func (s *Stream) Found(n int64) {
	if n == 0 || !s.buffered || s.pass.over() {
		return
	}
	at := Situation{Stream: s.length()}
	if s.found.Add(n) >= at.sample()/2 { // the last of several threads may be late
		s.pass.end()
	}
}

// WentAround notes a range that goes around the cache although it fits.
func (s *Stream) WentAround(off, n int64) { s.pass.around(off, n) }

// Lacks returns how many bytes of [off, off+n), which is read through the cache now, were
// not there before this pass, whoever has brought them since. gone of them are not there
// now. missing counts the bytes that the cache lacks of any range, -1 if unknown.
func (s *Stream) Lacks(off, n, gone int64, missing func(from, to int64) int64) int64 {
	if s.pass == nil || s.size == nil || s.uncached {
		return 0
	}
	seen := &s.pass.before
	look := gone == 0 && n >= measureLen && seen.due(off)
	if gone == 0 && !look && !seen.used.Load() {
		return 0
	}
	size, err := s.size()
	if err != nil {
		return 0
	}
	if look {
		if seen.lookBehind(off+n, size, missing); !seen.used.Load() {
			return 0
		}
	}
	lacks := seen.take(off, n, size, gone, missing)
	s.lacked.Add(lacks)
	return lacks
}

// Defer notes a range that went around the cache only to measure the storage, and is to
// be in the cache.
func (s *Stream) Defer(r Range) {
	s.deferredMu.Lock()
	defer s.deferredMu.Unlock()
	s.deferred = append(s.deferred, r)
	s.anyDeferred.Store(true)
}

// Deferred returns those ranges, once, when all reads of the measurement have begun, or none
// of this stream can follow, and the rest of it fills the cache: later reads must find these
// there, too.
func (s *Stream) Deferred() (rs []Range) {
	if !s.anyDeferred.Load() || s.rates.measuring() && !s.pass.over() && s.length()-s.read.Load() >= measureLeft {
		return nil
	}
	s.deferredMu.Lock()
	defer s.deferredMu.Unlock()
	rs, s.deferred = s.deferred, nil
	s.anyDeferred.Store(false)
	if s.FillsNothing() { // by now
		return nil
	}
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
// the bytes that it lacks of any range, -1 if unknown.
func (s *Stream) Ahead(off, n int64, req Range, cold bool, missing func(from, to int64) int64) (from, to int64) {
	if s.FillsNothing() && !s.noBypass || s.size == nil || s.uncached {
		return 0, 0
	}
	if at := s.situation(); at.passesBy() {
		return 0, 0
	}
	size, err := s.size()
	if err != nil {
		return 0, 0
	}
	from, to = s.ahead.next(off, n, req, size, cold, missing)
	if from < to && s.pass != nil {
		s.pass.before.look(from, to-from+kernelReach, size, missing)
	}
	return from, to
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
// request, which the reader does not need yet.
func (s *Stream) AskBehind(from, to int64, fetch, willNeed func(off, n int64) error) {
	s.behind.Go(func() { s.Ask(from, to, fetch, willNeed) })
}

// Wait waits for what AskBehind began. It must follow the last read, and precede the end
// of the descriptors.
func (s *Stream) Wait() { s.behind.Wait() }

// Count counts a finished read of n bytes.
func (s *Stream) Count(n int64) { s.read.Add(n) }

// Observe records that a thread read from began to ended, on such a path, and that n
// bytes of it were not in the cache before. Only streams that choose between filling the
// cache and going around it count.
func (s *Stream) Observe(p Path, n int64, began, ended time.Time) {
	if s.rates == nil || !s.buffered || route.CacheMode(s.mode.Load()) != route.CacheAuto {
		return
	}
	s.rates.observe(p, n, began, ended)
}
