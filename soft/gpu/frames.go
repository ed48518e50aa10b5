package gpu

import (
	"math/bits"
	"math/rand/v2"
)

const (
	// FrameSize is the size of a page of GPU memory.
	FrameSize = 64 << 10

	// blockSize is the unit in which memory is taken from a GPU.
	blockSize   = 2 << 20
	blockFrames = blockSize / FrameSize
)

// frames allocates the frames of a card: with scatter single ones, without it units of
// blockFrames neighbours.
type frames struct {
	taken []bool // by unit
	nfree int
	unit  uint64     // frames in a unit
	rng   *rand.Rand // nil without scatter
}

func newFrames(n uint64, scatter bool, seed uint64) *frames {
	f := &frames{unit: blockFrames}
	if scatter {
		f.unit = 1
		f.rng = rand.New(rand.NewPCG(seed, n))
	}
	f.taken = make([]bool, n/f.unit)
	f.nfree = len(f.taken)
	return f
}

// available returns the number of free frames.
func (f *frames) available() uint64 { return uint64(f.nfree) * f.unit }

// take returns the numbers of n frames, a multiple of blockFrames, or nil.
func (f *frames) take(n uint64) []uint64 {
	if n > f.available() {
		return nil
	}
	units := int(n / f.unit)
	out := make([]uint64, 0, n)
	walk := f.inOrder
	if f.rng != nil {
		walk = f.scattered
	}
	walk(units, func(u int) {
		f.taken[u] = true
		for i := range f.unit {
			out = append(out, uint64(u)*f.unit+i)
		}
	})
	f.nfree -= units
	return out
}

// inOrder takes the first run of neighbours that is long enough, or else the lowest free
// units.
func (f *frames) inOrder(units int, take func(int)) {
	first := 0
	for u, run := 0, 0; u < len(f.taken); u++ {
		if f.taken[u] {
			run = 0
			continue
		}
		if run++; run == units {
			first = u - units + 1
			break
		}
	}
	for u := first; units > 0; u++ {
		if !f.taken[u] {
			take(u)
			units--
		}
	}
}

// scattered walks around the lowest part of the card in steps that share no factor with
// its size, so that it visits each unit once and rarely two neighbours in a row. The part
// is at most four times what is in use: a used frame costs memory of this machine.
func (f *frames) scattered(units int, take func(int)) {
	used := len(f.taken) - f.nfree
	part := min(1<<bits.Len(uint(2*(used+units))), len(f.taken))
	step := 3 + f.rng.IntN(max(part/2-3, 1))
	for gcd(step, part) != 1 {
		step++
	}
	for u := f.rng.IntN(part); units > 0; u = (u + step) % part {
		if !f.taken[u] {
			take(u)
			units--
		}
	}
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// give frees frames.
func (f *frames) give(frames []uint64) {
	for i := 0; i < len(frames); i += int(f.unit) {
		f.taken[frames[i]/f.unit] = false
		f.nfree++
	}
}
