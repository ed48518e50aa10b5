package storage

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/culvert-io/culvert/route"
)

func fixed(n int64) func() (int64, error) { return func() (int64, error) { return n, nil } }

// TestStreamCounts: what the cache lacked before a pass is counted once, by the reads of it,
// whatever their sizes, and whoever has brought it: the kernel reads ahead by itself.
func TestStreamCounts(t *testing.T) {
	const size = 300*mib + 777
	cache := cachedFile{there: make([]bool, (size+pageSize-1)/pageSize), size: size}
	rnd := rand.New(rand.NewPCG(1, 2))
	s := NewStream(fixed(size), func() int64 { return 10 * gib })
	for pass := range 4 {
		switch pass {
		case 1: // nothing has changed
		case 2: // another program drops every other 400 KiB
			for i := range cache.there {
				cache.there[i] = cache.there[i] && i/100%2 == 1
			}
		case 3: // and all
			clear(cache.there)
		}
		want := cache.missing(0, size)
		var got int64
		for off := int64(0); off < size; {
			n := min(1+rnd.Int64N(8*mib), size-off)
			got += s.Lacks(off, n, cache.missing(off, off+n), cache.missing)
			cache.fill(off, off+n+8*mib)
			off += n
		}
		// A read may end inside a page, which the next one finds there.
		if got > want || got < want-64*pageSize {
			t.Errorf("pass %d: %d bytes count as filled, want %d", pass, got, want)
		}
	}
	for i := range cache.there { // the first half is there, and the kernel reads ahead behind it
		cache.there[i] = i < len(cache.there)/2
	}
	want, got := cache.missing(0, size), int64(0)
	for off := int64(0); off < size; off += mib {
		n := min(mib, size-off)
		got += s.Lacks(off, n, cache.missing(off, off+n), cache.missing)
		cache.fill(off, off+n+8*mib)
	}
	if got > want || got < want-pageSize {
		t.Errorf("behind what is there %d bytes count as filled, want %d", got, want)
	}
	if s.Lacks(0, size, 0, cache.missing); s.pass.before.used.Load() {
		t.Error("a file that is cached is still looked at")
	}
	looks := 0
	for i := range int64(10 * maxLooks) {
		s.Lacks(i%2*gib, mib, 0, func(int64, int64) int64 { looks++; return 0 })
	}
	if looks > maxLooks {
		t.Errorf("reads of what is cached have asked %d times what is behind it", looks)
	}
	for n, off := range []int64{0, 256 << 10, 0, 256 << 10} { // what was read before is a hit
		if n == 0 {
			clear(cache.there)
		}
		want := int64(256<<10) * int64(1-n/2)
		if got := s.Lacks(off, 256<<10, want, cache.missing); got != want {
			t.Errorf("of 256 KiB at %d, %d bytes count as filled in read %d", off, got, n/2+1)
		}
	}
	for n := range 2 { // the first part is dropped again, and then read once more
		if got := s.Lacks(mib, mib, mib, cache.missing); got != mib {
			t.Errorf("of a MiB that is not there %d bytes count as filled in read %d", got, n+1)
		}
	}
}

// TestStreamCountsReadsInFlight: the last read of a pass begins before the one of the file's
// end has brought its bytes. They are not counted again in the next pass.
func TestStreamCountsReadsInFlight(t *testing.T) {
	const size, tail = 3*mib + 777, 3 * mib
	cache := cachedFile{there: make([]bool, (size+pageSize-1)/pageSize), size: size}
	s := NewStream(fixed(size), func() int64 { return 10 * gib })
	read := func(off, n int64) int64 { return s.Lacks(off, n, cache.missing(off, off+n), cache.missing) }
	got := read(0, mib) + read(tail, size-tail)
	cache.fill(mib, tail)
	if got += read(mib, mib) + read(2*mib, mib); got != size {
		t.Errorf("%d bytes count as filled, want %d", got, size)
	}
	cache.fill(0, size)
	if got := read(0, tail) + read(tail, size-tail); got != 0 {
		t.Errorf("in the next pass %d bytes count as filled", got)
	}
}

// A cachedFile is what the page cache has of a file.
type cachedFile struct {
	there []bool // by pages
	size  int64
}

func (c *cachedFile) missing(from, to int64) (n int64) {
	for i := from / pageSize; i*pageSize < to; i++ {
		if !c.there[i] {
			n += pageSize
		}
	}
	return min(n, to-from)
}

func (c *cachedFile) fill(from, to int64) {
	for i := from / pageSize; i*pageSize < min(to, c.size); i++ {
		c.there[i] = true
	}
}

// begin is when comparisons begin in these tests, after what fills the cache.
var begin = time.Unix(0, 0)

// filling returns a stream of a GiB that has filled the cache with a window, at 1 GB/s.
func filling() *Stream {
	s := NewStream(fixed(gib), func() int64 { return 10 * gib })
	s.lacked.Add(rateWindow)
	s.Observe(Fill, startLen, begin.Add(-2*rateWindow), begin.Add(-rateWindow))
	s.Observe(Fill, rateWindow, begin.Add(-rateWindow), begin)
	return s
}

// TestStreamMeasures: when a window has filled the cache, the next one goes around it.
// The first pass goes on with the faster of both, and the second one fills the cache.
func TestStreamMeasures(t *testing.T) {
	s, cold := filling(), Residency{Pages: 1024}
	if NewStream(fixed(gib), nil).Measure(4*mib, begin) || !s.Measure(4*mib, begin) {
		t.Error("a window is read around the cache at the wrong time")
	}
	if p, _ := s.Path(0, 4*mib, cold, true); p != Fill {
		t.Errorf("with nothing to compare: path %d", p)
	}
	if from, to := s.Ahead(0, 4*mib, Range{0, gib}, true, func(from, to int64) int64 { return to - from }); from == to {
		t.Error("with nothing to compare, nothing is asked for ahead")
	}
	s.Defer(Range{mib, 5 * mib})
	if got := s.Deferred(); got != nil {
		t.Errorf("while it measures, it fills the cache with %v", got)
	}
	s.Observe(Around, comparedLen, begin, begin.Add(comparedLen/2))
	if s.Measure(4*mib, begin) {
		t.Error("two windows are read around the cache")
	}
	if got := s.Deferred(); !slices.Equal(got, []Range{{mib, 5 * mib}}) || s.Deferred() != nil {
		t.Errorf("deferred %v", got)
	}
	if p, why := s.Path(0, 4*mib, cold, true); p != Around || why != FastStorage {
		t.Errorf("storage twice as fast as filling: path %d (%v)", p, why)
	}
	if from, to := s.Ahead(0, 4*mib, Range{0, gib}, true, nil); from != to {
		t.Errorf("around the cache, and asks for %d-%d", from, to)
	}
	s.Count(gib)
	if p, _ := s.Path(0, 4*mib, cold, true); p != Fill {
		t.Errorf("the second pass: path %d", p)
	}
}

// TestStreamMeasuresLittle: what must not go around the cache does not, not even to be
// measured.
func TestStreamMeasuresLittle(t *testing.T) {
	for name, edit := range map[string]func(*Stream){
		"keep":        func(s *Stream) { s.SetMode(route.CacheKeep, 0) },
		"avoid":       func(s *Stream) { s.SetMode(route.CacheAvoid, 0) },
		"no O_DIRECT": func(s *Stream) { s.noBypass = true },
		"almost read": func(s *Stream) { s.read.Store(gib - measureLeft + 1) },
		"warm":        func(s *Stream) { s.lacked.Store(0) },
	} {
		s := filling()
		if edit(s); s.Measure(4*mib, begin) {
			t.Errorf("%s: measures", name)
		}
	}
	if filling().Measure(mib-1, begin) {
		t.Error("small reads: measures")
	}
	var direct Stream
	if direct.Measure(4*mib, begin) {
		t.Error("opened with O_DIRECT: measures")
	}
}

// TestWindowRate: the rate of threads that read at the same time is that of all of them,
// once they all do. Pauses do not count, and two windows do.
func TestWindowRate(t *testing.T) {
	at := func(ms int64) time.Time { return time.UnixMilli(ms) }
	w := windowRate{skip: 8 * mib}
	for i := range int64(2 + rateWindow/(4*mib)) { // four threads, 40 ms for 4 MiB each, in turns of 10 ms
		if got := w.get(); got != 0 {
			t.Fatalf("after %d reads: %.0f", i, got)
		}
		w.add(4*mib, at(10*i), at(10*i+40))
	}
	const first = float64(4*mib) / 0.010
	if got := w.get(); math.Abs(got-first) > 1 {
		t.Errorf("%.0f, want %.0f", got, first)
	}
	w.add(rateWindow/2, at(10_000), at(10_100))
	w.add(rateWindow/2, at(20_000), at(20_100))
	second := (first + float64(rateWindow)/0.2) / 2
	if got := w.get(); math.Abs(got-second) > 1 {
		t.Errorf("after a pause %.0f, want %.0f", got, second)
	}
	w.add(rateWindow/2, at(20_100), at(20_900))
	w.restart(4 * mib)
	w.add(4*mib, at(20_900), at(29_000))
	w.add(rateWindow, at(28_000), at(30_000))
	if got, want := w.get(), (second+rateWindow)/2; math.Abs(got-want) > 1 {
		t.Errorf("after it was restarted %.0f, want %.0f", got, want)
	}
}

// TestStreamModes: the zero value is a file opened with O_DIRECT; a caller who reads
// several files says how much in all.
func TestStreamModes(t *testing.T) {
	cold := Residency{Pages: 1}
	var direct Stream
	if p, why := direct.Path(0, 4096, cold, true); p != Around || why != OpenedDirect || !direct.FillsNothing() || direct.Spares(1) != why {
		t.Errorf("zero value: path %d (%v)", p, why)
	}
	if from, to := direct.Ahead(0, mib, Range{0, mib}, true, nil); from != to {
		t.Errorf("zero value: asks for %d-%d", from, to)
	}
	s := NewStream(fixed(gib), func() int64 { return 10 * gib })
	if s.SetMode(route.CacheAvoid, 0); !s.FillsNothing() || s.Spares(1) != AskedToAvoid {
		t.Error("avoid fills the cache")
	}
	s.SetMode(route.CacheAuto, 9*gib)
	if p, why := s.Path(0, 4096, cold, true); p != Around || why != TooLarge {
		t.Errorf("part of 9 GiB with 10 available: path %d (%v)", p, why)
	}
	if s.SetMode(route.CacheAuto, gib); s.Spares(gib) != NotBypassed {
		t.Error("spares the cache although it fits")
	}
	if s.SetMode(route.CacheAuto, 9*gib); s.Spares(SmallLen) != NotBypassed || s.Spares(SmallLen+1) != TooLarge {
		t.Error("more than a small read may fill the cache")
	}
	if s.noBypass = true; s.Spares(gib) != NotBypassed {
		t.Error("without O_DIRECT it could not be read at all")
	}
	s.noBypass = false
	if s.SetMode(route.CacheKeep, 9*gib); s.Spares(gib) != NotBypassed {
		t.Error("keep has a reason not to fill")
	}
	if p, _ := s.Path(0, 4096, cold, true); p != Fill {
		t.Errorf("keep: path %d", p)
	}
}

// TestMeasurementEnds: one reader of small requests cannot show what the storage can. It
// stops when filling would have moved twice as much.
func TestMeasurementEnds(t *testing.T) {
	const reads = 16
	s, now := filling(), begin
	for n := range reads {
		if !s.Measure(mib, now) {
			t.Fatalf("ended after %d reads", n)
		}
		s.Observe(Around, mib, now, now.Add(patience*comparedLen/reads)) // filling takes a nanosecond for a byte
		now = now.Add(patience * comparedLen / reads)
	}
	want := float64(reads*mib) / (patience * comparedLen) * 1e9
	if got := s.rates.direct.get(); s.Measure(mib, now) || math.Abs(got-want) > 1 {
		t.Errorf("when filling would have moved %d times as much: %.0f bytes per second, want %.0f", patience, got, want)
	}
}

// TestMeasurementOfManyThreads: reads that run at the same time end one after the other.
// The first ones alone say nothing about the storage.
func TestMeasurementOfManyThreads(t *testing.T) {
	slow := filling()
	for range 15 {
		slow.Measure(mib, begin)
		slow.Observe(Around, mib, begin, begin.Add(4*comparedLen)) // each four times as slow as filling all
	}
	if !slow.Measure(mib, begin.Add(4*comparedLen)) {
		t.Error("ended before the threads have come to their second reads")
	}
	slow.Observe(Around, mib, begin.Add(4*comparedLen), begin.Add(5*comparedLen))
	if slow.Measure(mib, begin.Add(5*comparedLen)) {
		t.Error("goes on in the second reads, when filling would have moved as much")
	}
	fast := filling()
	for n := range mostCompared / (4 * mib) {
		if !fast.Measure(4*mib, begin) {
			t.Errorf("%d reads are enough", n)
		}
	}
	if fast.Measure(4*mib, begin) {
		t.Error("more reads begin than are compared")
	}
}

// TestComparisonWhileOthersFill: what other threads fill meanwhile comes from the storage,
// too, and says nothing about filling, nor does what follows until all threads fill again.
func TestComparisonWhileOthersFill(t *testing.T) {
	s, at := filling(), func(part float64) time.Time { return begin.Add(time.Duration(part * comparedLen)) }
	s.Measure(comparedLen, begin)
	s.Observe(Fill, comparedLen, at(-0.5), at(0.5)) // half of it meanwhile
	s.Observe(Cached, gib, at(0), at(0.1))
	s.Observe(Around, comparedLen, at(0), at(0.5))
	s.Observe(Fill, rateWindow, at(0.4), at(0.7)) // it began before
	if fill, around := s.rates.fill.get(), s.rates.direct.get(); math.Abs(fill-1e9) > 1 || math.Abs(around-3e9) > 1 {
		t.Errorf("filling %.0f bytes per second, around %.0f, want 1e9 and 3e9", fill, around)
	}
	s.Observe(Fill, mostCompared, at(0.7), at(9))
	s.Observe(Fill, rateWindow, at(9), at(10))
	if fill := s.rates.fill.get(); math.Abs(fill-1.5e9) > 1 {
		t.Errorf("afterwards: filling %.0f, want the mean of 1e9 and 2e9", fill)
	}
}

// TestReadersOfTheSameBlocksMeasureNothing: each would read from the disk for itself.
func TestReadersOfTheSameBlocksMeasureNothing(t *testing.T) {
	s := filling()
	s.WentAround(0, 4*mib)
	s.Defer(Range{0, 4 * mib})
	if !s.Measure(4*mib, begin) || s.Deferred() != nil {
		t.Error("one reader does not measure")
	}
	s.Reopened().WentAround(0, 4*mib)
	if s.Measure(4*mib, begin) || s.Deferred() == nil {
		t.Error("two measure, or what they have read is not put into the cache")
	}
}
