package p2p

import (
	"sync"
	"syscall"

	softgpu "github.com/culvert-io/culvert/soft/gpu"
	"github.com/culvert-io/culvert/soft/pcie"
)

// PageSize is the size of the pages that the resource manager pins.
const PageSize = softgpu.FrameSize

// reserve is what the resource manager keeps of a BAR1 that is smaller than the
// memory behind it.
const reserve = 36 << 20

// A slot is a page of BAR1.
type slot struct {
	mem  []byte // what is seen there; nil when nothing is, or not any more
	refs int32  // pins that want it; draining while it is being given up
}

const draining = -1

// An aperture is BAR1: the window through which other devices reach a GPU's
// memory. Where BAR1 is as large as the memory every frame has its place in it
// (static BAR1); else places are handed out. Either way nothing is seen that is
// not pinned.
type aperture struct {
	gpu    *softgpu.GPU
	bar    *pcie.BAR
	static bool

	mu    sync.Mutex
	ended sync.Cond // a loan, or a drain
	slots []slot
	place []int32 // of frames, one more than the slot's number; not when static
	next  int     // where to look for a free slot
	used  int     // slots that are taken
	out   []*borrowed
	shelf []*borrowed
}

func newAperture(g *softgpu.GPU, port *pcie.Function) (*aperture, error) {
	m := g.Model()
	a := &aperture{gpu: g, static: m.BAR1 >= m.Memory, slots: make([]slot, m.BAR1/PageSize)}
	a.ended.L = &a.mu
	if a.static {
		a.slots = a.slots[: m.Memory/PageSize : m.Memory/PageSize]
	} else {
		a.place = make([]int32, m.Memory/PageSize)
	}
	var err error
	a.bar, err = port.AddBAR(m.BAR1, a)
	return a, err
}

// show makes lent memory visible and returns the physical addresses of its
// pages. Pins that overlap share places.
func (a *aperture) show(loan *softgpu.Loan) ([]uint64, error) {
	frames, _, _ := loan.Frames()
	phys := make([]uint64, len(frames))
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.static && !a.room(frames) {
		return nil, syscall.ENOMEM
	}
	segs, at := loan.Segs(), 0
	for i, f := range frames {
		if at == len(segs[0]) {
			segs, at = segs[1:], 0
		}
		n := a.take(f)
		s := &a.slots[n]
		if s.refs++; s.mem == nil {
			// The rest of the segment is left in the slice's capacity: that
			// is how neighbours know each other, see join.
			s.mem = segs[0][at : at+PageSize]
			a.used++
		}
		phys[i] = a.bar.Base() + uint64(n)*PageSize
		at += PageSize
	}
	return phys, nil
}

// room reports whether frames that have no place yet will find one.
func (a *aperture) room(frames []uint64) bool {
	need := 0
	for _, f := range frames {
		if a.place[f] == 0 {
			need++
		}
	}
	return need == 0 || need+reserve/PageSize <= len(a.slots)-a.used
}

// take is the slot of a frame, a new one if need be.
func (a *aperture) take(frame uint64) int {
	if a.static {
		return int(frame)
	}
	if p := a.place[frame]; p != 0 {
		return int(p - 1)
	}
	for a.slots[a.next].refs != 0 {
		a.next = (a.next + 1) % len(a.slots)
	}
	n := a.next
	a.next = (n + 1) % len(a.slots)
	a.place[frame] = int32(n + 1)
	return n
}

// hide undoes show. Pages that no other pin wants are seen no more at once, and
// when it returns no loan of them is out.
func (a *aperture) hide(loan *softgpu.Loan) {
	frames, _, _ := loan.Frames()
	a.mu.Lock()
	defer a.mu.Unlock()
	drained := make([]int32, 0, len(frames))
	for _, f := range frames {
		n := a.take(f)
		s := &a.slots[n]
		if s.refs--; s.refs == 0 {
			s.mem, s.refs = nil, draining
			drained = append(drained, int32(n))
			if !a.static {
				a.place[f] = 0
			}
		}
	}
	for a.lent() {
		a.ended.Wait()
	}
	for _, n := range drained {
		a.slots[n].refs = 0
	}
	a.used -= len(drained)
	a.ended.Broadcast()
}

// lent reports whether pages that are being given up are lent. Those of others
// count too: they drain as well.
func (a *aperture) lent() bool {
	for _, b := range a.out {
		for n := b.first; n <= b.last; n++ {
			if a.slots[n].refs == draining {
				return true
			}
		}
	}
	return false
}

// usedBytes is how much of BAR1 is in use.
func (a *aperture) usedBytes() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return uint64(a.used) * PageSize
}

// A borrowed range of slots is out on loan.
type borrowed struct {
	a           *aperture
	first, last int
	index       int // in aperture.out
}

// Lend is how a DMA of another device arrives.
func (a *aperture) Lend(segs [][]byte, off uint64, n int, _ pcie.Dir) ([][]byte, pcie.Hold, error) {
	first, last := int(off/PageSize), int((off+uint64(n)-1)/PageSize)
	a.mu.Lock()
	defer a.mu.Unlock()
	if last >= len(a.slots) {
		return segs, nil, syscall.EFAULT
	}
	for i := first; i <= last; i++ {
		if a.slots[i].mem == nil {
			return segs, nil, syscall.EFAULT
		}
	}
	at, from := off%PageSize, len(segs)
	for i := first; n > 0; i++ {
		mem := a.slots[i].mem[at:]
		mem = mem[:min(n, len(mem))]
		at = 0
		n -= len(mem)
		if len(segs) > from && follows(segs[len(segs)-1], mem) {
			prev := segs[len(segs)-1]
			segs[len(segs)-1] = prev[:len(prev)+len(mem)]
			continue
		}
		segs = append(segs, mem)
	}
	return segs, a.borrow(first, last), nil
}

// follows reports whether b lies behind a in one segment.
func follows(a, b []byte) bool {
	return cap(a) > len(a) && &a[:len(a)+1][len(a)] == &b[0]
}

// borrow writes a loan down. Call with mu held.
func (a *aperture) borrow(first, last int) *borrowed {
	var b *borrowed
	if k := len(a.shelf); k > 0 {
		b, a.shelf = a.shelf[k-1], a.shelf[:k-1]
	} else {
		b = &borrowed{a: a}
	}
	b.first, b.last, b.index = first, last, len(a.out)
	a.out = append(a.out, b)
	return b
}

// Release ends a loan.
func (b *borrowed) Release() {
	a := b.a
	a.mu.Lock()
	defer a.mu.Unlock()
	end := len(a.out) - 1
	a.out[b.index] = a.out[end]
	a.out[b.index].index = b.index
	a.out[end] = nil
	a.out = a.out[:end]
	a.shelf = append(a.shelf, b)
	a.ended.Broadcast()
}
