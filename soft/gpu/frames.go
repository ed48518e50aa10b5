package gpu

import (
	"math/bits"
	"math/rand/v2"

	"github.com/culvert-io/culvert/soft/internal/cards"
)

const (
	// FrameSize is the size of a page of GPU memory.
	FrameSize = 64 << 10

	// blockSize is the unit in which memory is taken from a GPU.
	blockSize   = 2 << 20
	blockFrames = blockSize / FrameSize
)

// frames allocates the frames of a card: with scatter single ones, without it units of
// blockFrames neighbours. If other processes use the card, too, their frames are not free.
type frames struct {
	units cards.Units
	unit  uint64       // frames in a unit
	rng   *rand.Rand   // nil without scatter
	card  int          // of shared
	all   *cards.Cards // nil if only this process uses the card
}

// unitFrames returns the number of frames that are allocated at a time.
func unitFrames(scatter bool) uint64 {
	if scatter {
		return 1
	}
	return blockFrames
}

func newFrames(n uint64, scatter bool, seed uint64) *frames {
	f := &frames{unit: unitFrames(scatter)}
	if scatter {
		f.rng = rand.New(rand.NewPCG(seed, n))
	}
	f.units = cards.NewUnits(int(n / f.unit))
	return f
}

// share makes the frames those of card i of all.
func (f *frames) share(all *cards.Cards, i int) {
	f.all, f.card, f.units = all, i, all.Card(i).Units
}

// lock excludes other processes.
func (f *frames) lock() (unlock func()) {
	if f.all == nil {
		return func() {}
	}
	f.all.Lock()
	return f.all.Unlock
}

// available returns the number of free frames.
func (f *frames) available() uint64 {
	defer f.lock()()
	return uint64(f.units.Free()) * f.unit
}

// reap frees the frames of processes that have ended.
func (f *frames) reap() {
	if f.all != nil {
		defer f.lock()()
		f.all.Reap()
	}
}

// take returns the numbers of n frames, a multiple of blockFrames, or nil.
func (f *frames) take(n uint64) []uint64 {
	defer f.lock()()
	units := int(n / f.unit)
	if units > f.units.Free() {
		return nil
	}
	pick := f.inOrder
	if f.rng != nil {
		pick = f.scattered
	}
	picked := pick(units)
	if len(picked) < units {
		f.units.Recount() // another process damaged the count
		return nil
	}
	for _, u := range picked {
		f.units.Take(u)
	}
	return f.of(picked)
}

// of returns the frames of units.
func (f *frames) of(units []int) []uint64 {
	out := make([]uint64, 0, uint64(len(units))*f.unit)
	for _, u := range units {
		for i := range f.unit {
			out = append(out, uint64(u)*f.unit+i)
		}
	}
	return out
}

// unitsOf returns the units of frames.
func (f *frames) unitsOf(frames []uint64) []int {
	units := make([]int, 0, uint64(len(frames))/f.unit)
	for i := 0; i < len(frames); i += int(f.unit) {
		units = append(units, int(frames[i]/f.unit))
	}
	return units
}

// inOrder returns the first run of neighbours that is long enough, or else the lowest
// free units.
func (f *frames) inOrder(units int) []int {
	n, first := f.units.Len(), 0
	for u, run := 0, 0; u < n; u++ {
		if f.units.Taken(u) {
			run = 0
			continue
		}
		if run++; run == units {
			first = u - units + 1
			break
		}
	}
	picked := make([]int, 0, units)
	for u := first; u < n && len(picked) < units; u++ {
		if !f.units.Taken(u) {
			picked = append(picked, u)
		}
	}
	return picked
}

// scattered walks around the lowest part of the card in steps that share no factor with
// its size, so that it visits each unit once and rarely two neighbours in a row. The part
// is at most four times what is in use: a used frame costs memory of this machine.
func (f *frames) scattered(units int) []int {
	n := f.units.Len()
	used := n - f.units.Free()
	part := min(1<<bits.Len(uint(2*(used+units))), n)
	step := 3 + f.rng.IntN(max(part/2-3, 1))
	for gcd(step, part) != 1 {
		step++
	}
	picked := make([]int, 0, units)
	u := f.rng.IntN(part)
	for i := 0; i < part && len(picked) < units; i++ {
		if !f.units.Taken(u) {
			picked = append(picked, u)
		}
		u = (u + step) % part
	}
	return picked
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// give frees frames, unless other processes use them.
func (f *frames) give(frames []uint64) {
	defer f.lock()()
	for _, u := range f.unitsOf(frames) {
		f.units.Give(u)
	}
}
