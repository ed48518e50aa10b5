package route

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/culvert-io/culvert/internal/human"
)

// Up to borderLow reads go through BAR1 and above borderHigh they do not, on every
// machine that was looked at. What is better between the two depends on the GPU,
// its link, the cores and the file system, and is measured.
const (
	borderLow  = 128 << 10
	borderHigh = 1 << 20
)

// borderSizes are the requests that are measured, in ascending order.
var borderSizes = []uint64{256 << 10, 512 << 10, borderHigh}

// A Border is where reads into registered buffers stop going through BAR1, as
// found by a measurement.
type Border struct {
	Identity Identity       `json:"identity"`
	Max      uint64         `json:"max_bytes"` // largest request that goes through BAR1
	Speeds   []BorderSpeeds `json:"speeds"`
}

// BorderSpeeds are bytes per second for requests of a size.
type BorderSpeeds struct {
	Size uint64  `json:"bytes"`
	Bar  float64 `json:"bar"` // with the ring beside it
	Ring float64 `json:"ring"`
}

// newBorder decides: BAR1 is taken up to the first size at which the ring is
// faster.
func newBorder(id Identity, speeds []BorderSpeeds) *Border {
	b := &Border{Identity: id, Max: borderLow, Speeds: speeds}
	for _, s := range speeds {
		if s.Bar < s.Ring {
			break
		}
		b.Max = s.Size
	}
	return b
}

// decline is the answer to requests beyond the border.
func (b *Border) decline() *Decline {
	text := fmt.Sprintf("the request is larger than %d KiB", b.Max>>10)
	for _, s := range b.Speeds {
		if s.Bar < s.Ring {
			text += fmt.Sprintf("; measured on %s with %d callers: at %d KiB ring moves %s, bar %s",
				b.Identity.FS, b.Identity.Callers, s.Size>>10, human.Rate(s.Ring), human.Rate(s.Bar))
			break
		}
	}
	return &Decline{Bar, "size", text, ""}
}

// A barUpTo is the bar route with the ring beside it and the border between the
// two on one file system.
type barUpTo struct {
	*BarRoute
	other  Route
	border *borderFinder
}

// Takes is BarRoute's with the border of this file system.
func (b *barUpTo) Takes(op *Op) *Decline {
	if op.Mem.Len <= borderLow || op.Mem.Len > borderHigh {
		return b.takes(op, defaultBorder)
	}
	if k := b.border.known.Load(); k != nil {
		return b.takes(op, k)
	}
	// Nothing is sought for a request that is out of the question anyway.
	if why := b.takes(op, noBorder); why != nil {
		return why
	}
	return b.takes(op, b.border.seek(op))
}

// A knownBorder is a border as requests meet it.
type knownBorder struct {
	max uint64
	why *Decline // for what is larger
}

var (
	defaultBorder = &knownBorder{barMax, barDeclineSize}
	noBorder      = &knownBorder{borderHigh, barDeclineSize}
)

// A borderFinder finds the border between bar and another route for a file
// system. The first request for which it matters has it looked up or measured;
// until then, and where that is not possible, it is barMax.
type borderFinder struct {
	find func(*Op) *Border // nil where it could not

	mu    sync.Mutex // held while the border is sought
	tries int
	known atomic.Pointer[knownBorder]
}

// maxBorderTries is how many files may be too small or too cold to measure with.
const maxBorderTries = 16

// seek finds the border. While one caller does, the others do without.
func (b *borderFinder) seek(op *Op) *knownBorder {
	if !b.mu.TryLock() {
		return defaultBorder
	}
	defer b.mu.Unlock()
	if k := b.known.Load(); k != nil {
		return k
	}
	if found := b.find(op); found != nil {
		b.known.Store(&knownBorder{found.Max, found.decline()})
	} else if b.tries++; b.tries >= maxBorderTries {
		b.known.Store(defaultBorder)
	}
	if k := b.known.Load(); k != nil {
		return k
	}
	return defaultBorder
}
