package storage

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/culvert-io/culvert/route"
)

func fixed(n int64) func() (int64, error) { return func() (int64, error) { return n, nil } }

// TestStreamCounts checks that bytes which were asked for early count once, as filled,
// by the reads that follow, whatever their sizes.
func TestStreamCounts(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	s := NewStream(fixed(gib), func() int64 { return 10 * gib })
	var asked, total, left int64
	var sum route.CacheUse
	for range 1000 {
		n := rnd.Int64N(8 * mib)
		if rnd.IntN(2) == 0 {
			s.asked.Add(n)
			asked += n
			left += n
		}
		var use route.CacheUse
		s.Count(&use, n)
		if want := min(left, n); use.Filled != want || use.Hit != n-want {
			t.Fatalf("of %d bytes, with %d asked for, %+v", n, left, use)
		}
		left -= use.Filled
		total += n
		sum.Add(&use)
	}
	if sum.Filled+left != asked || sum.Hit+sum.Filled != total {
		t.Errorf("%+v of %d asked for and %d read", sum, asked, total)
	}
}

// TestStreamMeasures: the storage's own rate is learned from three reads, spread over
// the first bytes that fill the cache; a first pass goes around the cache as soon as
// the storage is known to be faster, and the second one fills it.
func TestStreamMeasures(t *testing.T) {
	s := NewStream(fixed(gib), func() int64 { return 10 * gib })
	cold := Residency{Pages: 1024}
	var at []int
	for i := range 1000 {
		if s.Measure(4*mib, cold) {
			at = append(at, i)
		}
	}
	if want := []int{16, 32, 48}; !slices.Equal(at, want) {
		t.Errorf("reads %v of 4 MiB measured, want %v", at, want)
	}
	s.Observe(Around, 4*mib, time.Millisecond)
	if p, _ := s.Path(cold, true); p != Fill {
		t.Errorf("with nothing to compare: path %d", p)
	}
	s.Observe(Fill, 4*mib, 2*time.Millisecond)
	if p, why := s.Path(cold, true); p != Around || why != FastStorage {
		t.Errorf("storage twice as fast as filling: path %d (%v)", p, why)
	}
	var use route.CacheUse
	use.Bypassed = gib
	s.Count(&use, 0)
	if p, _ := s.Path(cold, true); p != Fill {
		t.Errorf("the second pass: path %d", p)
	}
}

// TestStreamMeasuresLittle: what must not go around the cache does not, not even to be
// measured.
func TestStreamMeasuresLittle(t *testing.T) {
	room := func() int64 { return 10 * gib }
	keep, avoid, small, dirty := NewStream(fixed(gib), room), NewStream(fixed(gib), room), NewStream(fixed(gib), room), NewStream(fixed(gib), room)
	keep.SetMode(route.CacheKeep, 0)
	avoid.SetMode(route.CacheAvoid, 0)
	var direct Stream
	for i := range 1000 {
		if keep.Measure(4*mib, Residency{}) || avoid.Measure(4*mib, Residency{}) || direct.Measure(4*mib, Residency{}) {
			t.Fatalf("read %d of a stream with a choice measured", i)
		}
		if small.Measure(mib-1, Residency{}) || dirty.Measure(4*mib, Residency{Dirty: true}) {
			t.Fatalf("read %d, small or dirty, measured", i)
		}
	}
}

// TestStreamModes: the zero value is a file opened with O_DIRECT; a caller who reads
// several files says how much in all.
func TestStreamModes(t *testing.T) {
	cold := Residency{Pages: 1}
	var direct Stream
	if p, why := direct.Path(cold, true); p != Around || why != OpenedDirect || !direct.FillsNothing() || direct.Reason() != why {
		t.Errorf("zero value: path %d (%v)", p, why)
	}
	if from, to := direct.Ahead(0, mib, Range{0, mib}, true, nil); from != to {
		t.Errorf("zero value: asks for %d-%d", from, to)
	}
	s := NewStream(fixed(gib), func() int64 { return 10 * gib })
	if s.SetMode(route.CacheAvoid, 0); !s.FillsNothing() || s.Reason() != AskedToAvoid {
		t.Error("avoid fills the cache")
	}
	s.SetMode(route.CacheAuto, 9*gib)
	if p, why := s.Path(cold, true); p != Around || why != TooLarge {
		t.Errorf("part of 9 GiB with 10 available: path %d (%v)", p, why)
	}
	if s.SetMode(route.CacheKeep, 9*gib); s.Reason() != NotBypassed {
		t.Error("keep has a reason not to fill")
	}
	if p, _ := s.Path(cold, true); p != Fill {
		t.Errorf("keep: path %d", p)
	}
}
