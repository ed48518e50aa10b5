package crash

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
)

// A Cut is a power cut and the writes in the drive's cache that are lost. A drive may
// write its cache back in any order, so any writes since the last flush can be lost
// while later ones are not. A block that was written twice may get its first contents.
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

// A history is the writes to a drive.
type history []entry

// flushed returns the number of writes that are on the medium: those before the last
// flush.
func (h history) flushed(at int) int {
	for i := at - 1; i >= 0; i-- {
		if h[i].flags&flagFlush != 0 {
			return i
		}
	}
	return 0
}

// loose returns the writes that a cut may lose: made since the last flush and not
// durable themselves. File systems write the record that ends a transaction after a
// flush and with FUA; the emulated drive's log has the flush but not the FUA, so the
// write right after a flush counts as durable.
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

// marks returns the cuts that every test has: the first point, those after each flush
// or durable write, and the last. Nothing is lost in them.
func (h history) marks(first int) []Cut {
	cuts := []Cut{{At: first}}
	for i := first; i < len(h); i++ {
		if h[i].durable() || i+1 == len(h) {
			cuts = append(cuts, Cut{At: i + 1})
		}
	}
	return cuts
}

// some returns n cuts that the seed selects, most of them with losses.
func (h history) some(first, n int, seed uint64) []Cut {
	rng := rand.New(rand.NewPCG(seed, 0))
	var cuts []Cut
	for range n {
		at := first + rng.IntN(len(h)-first+1)
		cuts = append(cuts, Cut{at, lose(rng, h.loose(at))})
	}
	return cuts
}

// lose selects what is lost: nothing, everything, one write, all but one, or any.
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

// all returns the cuts of an exhaustive test: every point without losses, with all
// losses, with each single loss, and with all losses but one.
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

// distinct sorts cuts by time and removes duplicates.
func distinct(cuts []Cut) []Cut {
	compare := func(a, b Cut) int {
		return cmp.Or(a.At-b.At, slices.Compare(a.Lost, b.Lost))
	}
	slices.SortFunc(cuts, compare)
	return slices.CompactFunc(cuts, func(a, b Cut) bool { return compare(a, b) == 0 })
}
