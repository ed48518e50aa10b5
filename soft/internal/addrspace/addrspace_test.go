package addrspace

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Ranges never overlap, keep to their limits and alignment, and all of the
// space can be had again when everything was given back.
func TestSpace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const base, size = 1 << 20, 1 << 16
		s := New[uint64, uint64](base, base+size)
		live := map[uint64]uint64{}
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				n := rapid.Uint64Range(0, size/3).Draw(t, "n")
				align := uint64(1) << rapid.IntRange(0, 14).Draw(t, "align")
				a, ok := s.Take(n, align, n)
				if !ok {
					return
				}
				if n == 0 || a%align != 0 || a < base || a+n > base+size {
					t.Fatalf("%d at %#x, aligned to %d", n, a, align)
				}
				for b, m := range live {
					if a < b+m && b < a+n {
						t.Fatalf("[%#x:+%d] overlaps [%#x:+%d]", a, n, b, m)
					}
				}
				live[a] = n
			},
			"find": func(t *rapid.T) {
				a := base + rapid.Uint64Range(0, size-1).Draw(t, "a")
				n := rapid.Uint64Range(1, size/8).Draw(t, "n")
				var at, overlap bool
				for b, m := range live {
					at = at || a-b < m
					overlap = overlap || a < b+m && b < a+n
				}
				if got := s.Find(a); (got != 0) != at {
					t.Fatalf("%#x: %d", a, got)
				}
				if got := s.Overlap(a, n); (got != 0) != overlap {
					t.Fatalf("[%#x:+%d]: %d", a, n, got)
				}
			},
			"give": func(t *rapid.T) {
				for a := range live {
					s.Remove(a)
					s.Remove(a)
					delete(live, a)
					break
				}
			},
		})
		for a := range live {
			s.Remove(a)
		}
		if a, ok := s.Take(size, 1, 0); !ok || a != base {
			t.Fatalf("the empty space gives %#x, %v", a, ok)
		}
	})
}

// An address that was given back does not come again at once.
func TestSpaceTakesTurns(t *testing.T) {
	s := New[uint64, uint64](0, 100)
	a, _ := s.Take(10, 1, 0)
	s.Remove(a)
	if b, ok := s.Take(10, 1, 0); !ok || b == a {
		t.Errorf("%d came again at once", b)
	}
}

func TestTakeLowestUsesTheFirstGap(t *testing.T) {
	s := New[uint64, string](0, 100)
	s.Insert(0, 10, "first")
	s.Insert(20, 10, "second")
	for _, want := range []uint64{10, 30} {
		if a, ok := s.TakeLowest(10, 1, "taken"); !ok || a != want {
			t.Errorf("%d, %v; want %d", a, ok, want)
		}
	}
	if _, ok := s.TakeLowest(61, 1, ""); ok {
		t.Error("more than the space has")
	}
	if got := slices.Collect(s.All()); !slices.Equal(got, []string{"first", "taken", "second", "taken"}) || s.Len() != 4 {
		t.Errorf("%q", got)
	}
}
