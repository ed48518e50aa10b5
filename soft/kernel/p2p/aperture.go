package p2p

import (
	"slices"
	"sync"
	"syscall"

	softgpu "github.com/culvert-io/culvert/soft/gpu"
	"github.com/culvert-io/culvert/soft/pcie"
)

// PageSize is the size of pinned pages.
const PageSize = softgpu.FrameSize

// reserve is what the resource manager keeps of a BAR1 that is smaller than the
// memory.
const reserve = 36 << 20

// A slot is a page of BAR1.
type slot struct {
	mem    []byte // what is visible there, or nil
	refs   int32  // pins of it
	drains int32  // pins that ended and wait for accesses
}

// An aperture is BAR1, through which other devices reach a GPU's memory. If BAR1 is
// as large as the memory, every frame has a fixed slot (static BAR1); otherwise slots
// are allocated. Only pinned memory is visible.
type aperture struct {
	gpu    *softgpu.GPU
	port   *pcie.Function
	bar    *pcie.Window
	static bool

	mu       sync.Mutex
	ended    sync.Cond // signalled when an access ends
	slots    []slot    // allocated at first use
	place    []int32   // by frame: slot number + 1; nil if static
	next     int       // where to search for a free slot
	used     int       // visible slots
	draining int
	accesses uint64 // number of accesses so far
	active   []*slotAccess
	unused   []*slotAccess
}

func newAperture(g *softgpu.GPU, port *pcie.Function) (*aperture, error) {
	m := g.Model()
	a := &aperture{gpu: g, port: port, static: m.BAR1 >= m.Memory}
	a.ended.L = &a.mu
	var err error
	a.bar, err = port.AddBAR(m.BAR1, a)
	return a, err
}

// furnish allocates the tables. Call with mu held.
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

// show makes memory visible and returns the physical addresses of its pages.
// Overlapping pins share slots.
func (a *aperture) show(access *softgpu.Access) ([]uint64, error) {
	frames, _ := access.Frames()
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
			// The rest of the segment stays in the capacity: follows finds adjacent
			// pages by it.
			s.mem = segs[0][at : at+PageSize]
			a.used++
		}
		phys[i] = a.bar.Base() + uint64(n)*PageSize
		at += PageSize
	}
	return phys, nil
}

// room reports whether there are slots for frames that have none.
func (a *aperture) room(frames []uint64) bool {
	need := 0
	for _, f := range frames {
		if a.place[f] == 0 {
			need++
		}
	}
	return need == 0 || need+reserve/PageSize <= len(a.slots)-a.used-a.draining
}

// take returns the slot of a frame, and allocates one if it has none.
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

// hide undoes show. Pages without another pin become invisible at once. When it
// returns, no access to them is in progress.
func (a *aperture) hide(access *softgpu.Access) {
	frames, _ := access.Frames()
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
	for until := a.accesses; a.inUse(until); {
		a.ended.Wait()
	}
	a.draining -= len(drained)
	for _, n := range drained {
		a.slots[n].drains--
	}
}

// inUse reports whether pages of ended pins are in an access that is as old as since.
// Later accesses use another pin of the same pages. Pages of other ended pins count,
// too: their accesses also end.
func (a *aperture) inUse(since uint64) bool {
	for _, b := range a.active {
		for n := b.first; n <= b.last && b.seq <= since; n++ {
			if a.slots[n].drains > 0 {
				return true
			}
		}
	}
	return false
}

// usedBytes returns how much of BAR1 is in use.
func (a *aperture) usedBytes() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return uint64(a.used) * PageSize
}

// A slotAccess is an access to a range of slots.
type slotAccess struct {
	a           *aperture
	first, last int
	seq         uint64 // number of the access
	index       int    // in aperture.active
}

// Acquire starts the DMA of another device.
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
	return segs, a.begin(first, last), nil
}

// follows reports whether b is behind a in one segment.
func follows(a, b []byte) bool {
	return cap(a) > len(a) && &a[:len(a)+1][len(a)] == &b[0]
}

// begin records an access. Call with mu held.
func (a *aperture) begin(first, last int) *slotAccess {
	var b *slotAccess
	if k := len(a.unused); k > 0 {
		b, a.unused = a.unused[k-1], a.unused[:k-1]
	} else {
		b = &slotAccess{a: a}
	}
	a.accesses++
	b.first, b.last, b.seq, b.index = first, last, a.accesses, len(a.active)
	a.active = append(a.active, b)
	return b
}

// Release ends the access.
func (b *slotAccess) Release() {
	a := b.a
	a.mu.Lock()
	defer a.mu.Unlock()
	end := len(a.active) - 1
	a.active[b.index] = a.active[end]
	a.active[b.index].index = b.index
	a.active[end] = nil
	a.active = a.active[:end]
	a.unused = append(a.unused, b)
	a.ended.Broadcast()
}
