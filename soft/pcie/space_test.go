package pcie

import (
	"testing"

	"pgregory.net/rapid"
)

// Ranges never overlap, keep to their limits and alignment, and all of the
// space can be had again when everything was given back.
func TestSpace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const base, size = 1 << 20, 1 << 16
		s := newSpace(base, base+size)
		live := map[uint64]uint64{}
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				n := rapid.Uint64Range(0, size/3).Draw(t, "n")
				align := uint64(1) << rapid.IntRange(0, 14).Draw(t, "align")
				a, ok := s.take(n, align)
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
			"give": func(t *rapid.T) {
				for a := range live {
					s.give(a)
					s.give(a)
					delete(live, a)
					break
				}
			},
		})
		for a := range live {
			s.give(a)
		}
		if a, ok := s.take(size, 1); !ok || a != base {
			t.Fatalf("the empty space gives %#x, %v", a, ok)
		}
	})
}

// An address that was given back does not come again at once.
func TestSpaceTakesTurns(t *testing.T) {
	s := newSpace(0, 100)
	a, _ := s.take(10, 1)
	s.give(a)
	if b, ok := s.take(10, 1); !ok || b == a {
		t.Errorf("%d came again at once", b)
	}
}
