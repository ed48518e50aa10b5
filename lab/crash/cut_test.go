package crash

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func write(flags uint64) entry { return entry{len: 512, flags: flags} }

var flush = entry{flags: flagFlush}

func TestLoose(t *testing.T) {
	// Two writes, a commit record behind a flush, two more of which one is forced.
	h := history{write(0), write(0), flush, write(0), write(0), write(flagFUA), {flags: flagMark}, write(flagDiscard)}
	for at, want := range map[int][]int{
		0: nil,
		1: {0},
		2: {0, 1},
		3: nil,    // flushed
		4: nil,    // the commit record is forced
		5: {4},    // what comes behind it is not
		6: {4},    // forced by itself
		8: {4, 7}, // a discard can be lost, a mark cannot
	} {
		if diff := cmp.Diff(want, h.loose(at)); diff != "" {
			t.Errorf("after %d writes (-want +got):\n%s", at, diff)
		}
	}
	marks := h.marks(1)
	if diff := cmp.Diff([]Cut{{At: 1}, {At: 3}, {At: 6}, {At: 8}}, marks); diff != "" {
		t.Errorf("marks (-want +got):\n%s", diff)
	}
}

// No cut loses what a flush or a force has made durable, and the exhaustive list
// has all of the others.
func TestCutsLoseOnlyWhatIsLoose(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := history(rapid.SliceOfN(rapid.SampledFrom([]entry{write(0), write(0), write(0), write(flagFUA), flush}), 1, 20).Draw(t, "writes"))
		first := rapid.IntRange(0, len(h)).Draw(t, "first")
		seed := rapid.Uint64().Draw(t, "seed")
		for _, c := range slices.Concat(h.marks(first), h.some(first, 20, seed), h.all(first)) {
			if c.At < first || c.At > len(h) {
				t.Fatalf("%v of %d writes from %d on", c, len(h), first)
			}
			last := -1
			for i, e := range h[:c.At] {
				if e.flags&flagFlush != 0 {
					last = i
				}
			}
			for _, i := range c.Lost {
				if i < last || i >= c.At || h[i].flags != 0 || i > 0 && h[i-1].flags == flagFlush {
					t.Fatalf("%v: write %d of %v is durable", c, i, h)
				}
			}
		}
	})
}

func TestSeededCutsLoseInEveryWay(t *testing.T) {
	loose := []int{3, 5, 6, 9}
	sizes := map[int]int{}
	rng := rand.New(rand.NewPCG(1, 0))
	for range 200 {
		lost := lose(rng, loose)
		if !slices.IsSorted(lost) {
			t.Fatalf("lost %v", lost)
		}
		sizes[len(lost)]++
	}
	for n := range 5 {
		if sizes[n] < 5 {
			t.Errorf("%d of 4 writes were lost %d times in 200", n, sizes[n])
		}
	}
	if diff := cmp.Diff([]int{3, 5, 6, 9}, loose); diff != "" {
		t.Errorf("the list was changed: %s", diff)
	}
}

func TestDistinct(t *testing.T) {
	got := distinct([]Cut{{At: 2}, {2, []int{1}}, {At: 1}, {2, []int{}}, {2, []int{1}}, {2, []int{0, 1}}})
	if diff := cmp.Diff([]Cut{{At: 1}, {At: 2}, {2, []int{0, 1}}, {2, []int{1}}}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
