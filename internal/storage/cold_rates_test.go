package storage

import (
	"math"
	"testing"
	"time"

	"github.com/culvert-io/culvert/route"
)

// TestComparisonThatStops: a reader may stop in the middle of a comparison, because little of
// its file is left, or it is closed. The next one goes on with it. What is filled between
// them is no comparison, and counts as filling.
func TestComparisonThatStops(t *testing.T) {
	s, now := filling(), begin
	read := func(p Path, n int64, took int64) {
		if p == Around && !s.Measure(n, now) {
			t.Fatal("the comparison is over")
		}
		ended := now.Add(time.Duration(took))
		s.Observe(p, n, now, ended)
		now = ended
	}
	for range 4 {
		read(Around, 4*mib, mib) // four times as fast as filling
	}
	for range 256 {
		read(Fill, 4*mib, 4*mib)
	}
	for range 12 {
		read(Around, 4*mib, mib)
	}
	if fill, around := s.rates.fill.get(), s.rates.direct.get(); math.Abs(fill-1e9) > 1e6 || math.Abs(around-4e9) > 1e6 {
		t.Errorf("filling %.2f GB/s, around %.2f, want 1 and 4", fill/1e9, around/1e9)
	}
}

// TestFillRateAfterStoppedComparison: a reader stops in the middle of a comparison. Filling
// that is slower afterwards lowers the rate of filling.
func TestFillRateAfterStoppedComparison(t *testing.T) {
	s := filling()
	s.Measure(4*mib, begin)
	s.Observe(Around, 4*mib, begin, begin.Add(1))
	at := begin.Add(1)
	for range 10 {
		s.Observe(Fill, rateWindow, at, at.Add(4*rateWindow))
		at = at.Add(4 * rateWindow)
	}
	if got := s.rates.fill.get(); got > 0.3e9 {
		t.Errorf("filling %.2f GB/s, want 0.25", got/1e9)
	}
}

// TestDeferredNearTheEnd: what went around the cache is fetched also if too little of the
// file is left for all of the comparison.
func TestDeferredNearTheEnd(t *testing.T) {
	s := filling()
	s.Count(gib - measureLeft)
	if !s.Measure(4*mib, begin) {
		t.Fatal("does not measure")
	}
	s.Defer(Range{0, 4 * mib})
	if got := s.Deferred(); got != nil {
		t.Errorf("fetches %v while more can be measured", got)
	}
	s.Count(4 * mib)
	if s.Measure(4*mib, begin) || len(s.Deferred()) != 1 {
		t.Error("measures near the end, or does not fetch what it has measured")
	}
	s.Defer(Range{0, 4 * mib})
	if s.SetMode(route.CacheAvoid, 0); s.Deferred() != nil {
		t.Error("fetches although the cache is to be spared by now")
	}
}
