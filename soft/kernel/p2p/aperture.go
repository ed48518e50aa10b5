package p2p

import (
	"slices"
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
	mem    []byte // what is seen there; nil when nothing is, or not any more
	refs   int32  // pins that want it
	drains int32  // those that gave it up and wait for loans to end
}

// An aperture is BAR1: the window through which other devices reach a GPU's
// memory. Where BAR1 is as large as the memory every frame has its place in it
// (static BAR1); else places are handed out. Either way nothing is seen that is
// not pinned.
type aperture struct {
	gpu    *softgpu.GPU
	port   *pcie.Function
	bar    *pcie.Window
	static bool

	mu       sync.Mutex
	ended    sync.Cond // a loan
	slots    []slot    // made when first needed
	place    []int32   // of frames, one more than the slot's number; not when static
	next     int       // where to look for a free slot
	used     int       // slots that are seen
	draining int
	accesses uint64 // ever made
	out      []*borrowed
	shelf    []*borrowed
}

func newAperture(g *softgpu.GPU, port *pcie.Function) (*aperture, error) {
	m := g.Model()
	a := &aperture{gpu: g, port: port, static: m.BAR1 >= m.Memory}
	a.ended.L = &a.mu
	var err error
	a.bar, err = port.AddBAR(m.BAR1, a)
	return a, err
}

// furnish makes the tables. Call with mu held.
func (a *aperture) furnish() {
	if a.slots != nil {
		return
	}
	m := a.gpu.Model()
	a.slots = make([]slot, min(m.BAR1, m.Memory)/PageSize)
	if !a.static {
		a.place = make([]int32, m.Memory/PageSize)
	}
}

// show makes lent memory visible and returns the physical addresses of its
// pages. Pins that overlap share places.
func (a *aperture) show(access *softgpu.Access) ([]uint64, error) {
	frames, _, _ := access.Frames()
	phys := make([]uint64, len(frames))
	a.mu.Lock()
	defer a.mu.Unlock()
	a.furnish()
	if !a.static && !a.room(frames) {
		return nil, syscall.ENOMEM
	}
	segs, at := access.Segs(), 0
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
	return need == 0 || need+reserve/PageSize <= len(a.slots)-a.used-a.draining
}

// take is the slot of a frame, a new one if need be.
func (a *aperture) take(frame uint64) int {
	if a.static {
		return int(frame)
	}
	if p := a.place[frame]; p != 0 {
		return int(p - 1)
	}
	for a.slots[a.next].refs+a.slots[a.next].drains != 0 {
		a.next = (a.next + 1) % len(a.slots)
	}
	n := a.next
	a.next = (n + 1) % len(a.slots)
	a.place[frame] = int32(n + 1)
	return n
}

// hide undoes show. Pages that no other pin wants are seen no more at once, and
// when it returns no loan of them is out.
func (a *aperture) hide(access *softgpu.Access) {
	frames, _, _ := access.Frames()
	a.mu.Lock()
	defer a.mu.Unlock()
	drained := make([]int32, 0, len(frames))
	for _, f := range frames {
		n := a.take(f)
		s := &a.slots[n]
		if s.refs--; s.refs > 0 {
			continue
		}
		s.mem = nil
		s.drains++
		drained = append(drained, int32(n))
		if !a.static {
			a.place[f] = 0
		}
	}
	a.used -= len(drained)
	a.draining += len(drained)
	for until := a.accesses; a.lent(until); {
		a.ended.Wait()
	}
	a.draining -= len(drained)
	for _, n := range drained {
		a.slots[n].drains--
	}
}

// lent reports whether pages that are being given up are on loan since then or
// earlier. Later loans came through another pin of the same pages, and need not
// be waited for. Pages that others give up count too: their loans end as well.
func (a *aperture) lent(since uint64) bool {
	for _, b := range a.out {
		for n := b.first; n <= b.last && b.seq <= since; n++ {
			if a.slots[n].drains > 0 {
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
	seq         uint64 // counts loans
	index       int    // in aperture.out
}

// Acquire is how a DMA of another device arrives.
func (a *aperture) Acquire(segs [][]byte, off uint64, n int, _ pcie.Dir) ([][]byte, pcie.Releaser, error) {
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
	for i := from; i < len(segs); i++ {
		segs[i] = slices.Clip(segs[i])
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
	a.accesses++
	b.first, b.last, b.seq, b.index = first, last, a.accesses, len(a.out)
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
