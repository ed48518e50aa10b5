package crash

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// A Cut is a power cut: the moment, and what was in the drive's cache then and is
// lost. A drive may write its cache back in any order, so that any of the writes
// since the last flush can be lost while later ones are not. Older contents of a
// block that was written twice show when the second write is lost.
type Cut struct {
	At   int   // the number of writes before it
	Lost []int // those of them that are lost, in ascending order
}

func (c Cut) String() string {
	if len(c.Lost) == 0 {
		return fmt.Sprintf("power cut after write %d", c.At)
	}
	return fmt.Sprintf("power cut after write %d, with %v lost", c.At, c.Lost)
}

// A history is what was written to a drive.
type history []entry

// flushed is the number of writes that are on the medium for sure at a moment:
// those before the last flush.
func (h history) flushed(at int) int {
	for i := at - 1; i >= 0; i-- {
		if h[i].flags&flagFlush != 0 {
			return i
		}
	}
	return 0
}

// loose are the writes that may be lost in a cut: made since the last flush, and
// not durable by themselves. File systems write the record that ends a
// transaction with a flush before it and forced to the medium (FUA); the
// emulated drive's log shows the flush and not the force, and so the write just
// behind a flush is taken as forced.
func (h history) loose(at int) []int {
	var list []int
	for i := h.flushed(at); i < at; i++ {
		forced := h[i].flags&flagFUA != 0 || i > 0 && h[i-1].flags&flagFlush != 0
		if h[i].len > 0 && h[i].flags&flagMark == 0 && !forced {
			list = append(list, i)
		}
	}
	return list
}

// marks are the cuts that every test visits: the first moment, the one after each
// flush or forced write, and the last. Nothing is lost in them.
func (h history) marks(first int) []Cut {
	cuts := []Cut{{At: first}}
	for i := first; i < len(h); i++ {
		if h[i].durable() || i+1 == len(h) {
			cuts = append(cuts, Cut{At: i + 1})
		}
	}
	return cuts
}

// some are n cuts that the seed picks, most of them with losses.
func (h history) some(first, n int, seed uint64) []Cut {
	rng := rand.New(rand.NewPCG(seed, 0))
	var cuts []Cut
	for range n {
		at := first + rng.IntN(len(h)-first+1)
		cuts = append(cuts, Cut{at, lose(rng, h.loose(at))})
	}
	return cuts
}

// lose picks what is lost: nothing, everything, one write, all but one, or any.
func lose(rng *rand.Rand, loose []int) []int {
	if len(loose) == 0 {
		return nil
	}
	one := rng.IntN(len(loose))
	switch rng.IntN(6) {
	case 0:
		return nil
	case 1:
		return loose
	case 2:
		return loose[one : one+1]
	case 3:
		return slices.Delete(slices.Clone(loose), one, one+1)
	}
	return slices.DeleteFunc(slices.Clone(loose), func(int) bool { return rng.IntN(2) == 0 })
}

// all are the cuts of an exhaustive test: every moment without losses, with all
// that can be lost, with each write lost, and with each write kept alone.
func (h history) all(first int) []Cut {
	var cuts []Cut
	for at := first; at <= len(h); at++ {
		loose := h.loose(at)
		cuts = append(cuts, Cut{At: at}, Cut{at, loose})
		for i := range loose {
			cuts = append(cuts, Cut{at, loose[i : i+1]}, Cut{at, slices.Delete(slices.Clone(loose), i, i+1)})
		}
	}
	return cuts
}

// distinct sorts cuts by time and drops those that stand twice.
func distinct(cuts []Cut) []Cut {
	compare := func(a, b Cut) int {
		if a.At != b.At {
			return a.At - b.At
		}
		return slices.Compare(a.Lost, b.Lost)
	}
	slices.SortFunc(cuts, compare)
	return slices.CompactFunc(cuts, func(a, b Cut) bool { return compare(a, b) == 0 })
}
