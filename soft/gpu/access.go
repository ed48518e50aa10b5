package gpu

import (
	"fmt"
	"slices"
	"sync"

	"github.com/culvert-io/culvert/gpu"
)

// A Loan is device memory in the hands of somebody else than its owner.
type Access struct {
	blk    *block
	segs   [][]byte
	frames []uint64
	off    uint64
	once   sync.Once
}

// GPU is the card whose memory was lent.
func (l *Access) GPU() *GPU { return l.blk.card }

// Segs are the bytes in order. Neighbouring frames are joined.
func (l *Access) Segs() [][]byte { return l.segs }

// Frames are the numbers of the frames that the bytes lie in, and their
// generation; the first byte is at off in the first frame.
func (l *Access) Frames() (frames []uint64, gen, off uint64) { return l.frames, l.blk.gen, l.off }

// Return ends the loan; Segs must not be used any more. Further calls do nothing.
func (l *Access) Release() {
	l.once.Do(func() {
		d := l.blk.card.drv
		d.mu.Lock()
		defer d.mu.Unlock()
		d.accesses--
		d.drop(l.blk)
	})
}

// newAccess lends n bytes from off. Call with Driver.mu held.
func (d *Driver) newAccess(b *block, off, n uint64) *Access {
	b.holds++
	d.accesses++
	return &Access{blk: b, segs: b.segs(off, n), frames: b.framesAt(off, n), off: off % FrameSize}
}

// drop gives a hold back. Call with Driver.mu held.
func (d *Driver) drop(b *block) {
	b.holds--
	d.settle(b)
}

// settle does what had to wait until nobody held the block. Call with
// Driver.mu held.
func (d *Driver) settle(b *block) {
	switch {
	case b.holds > 0:
	case b.live > 0:
		if b.small != nil {
			b.small.settle()
		}
	case b.card != nil:
		b.card.freeFrames(b)
	default:
		b.end()
	}
}

// blockAt is the block under [a, a+n), and where in it a lies. Unlike a
// look-up of regions it knows the whole block, used or not. Call with
// Driver.mu held.
func (g *GPU) blockAt(op string, a gpu.Addr, n uint64) (b *block, base gpu.Addr, err error) {
	if s := g.slabs[a&^(blockSize-1)]; s != nil {
		b, base = s, s.small.base
	} else if r := g.drv.space.before(a); r != nil && r.span > 0 && uint64(a-r.base) < r.span && r.blk.card == g {
		b, base = r.blk, r.base
	}
	switch {
	case b == nil:
		err = gpu.Fail(fmt.Sprintf("%s(%v, %d)", op, a, n), gpu.ErrInvalidValue, fmt.Sprintf("no memory of GPU %d there", g.index))
	case n == 0 || n > b.size-uint64(a-base):
		err = gpu.Fail(fmt.Sprintf("%s(%v, %d)", op, a, n), gpu.ErrInvalidValue,
			fmt.Sprintf("the range must lie in one block: %d bytes at %v", b.size, base))
	}
	return b, base, err
}

// Block is the block of memory (the unit that the resource manager knows) that
// a lies in: one large allocation, or 2 MiB shared by small ones.
func (g *GPU) Block(a gpu.Addr) (base gpu.Addr, size uint64, ok bool) {
	g.drv.mu.Lock()
	defer g.drv.mu.Unlock()
	b, base, err := g.blockAt("block", a, 1)
	if err != nil {
		return 0, 0, false
	}
	return base, b.size, true
}

// Frames are the numbers of the frames under [a, a+n), which must lie in one
// block. A frame's physical address is its number times FrameSize. gen is the
// block's generation, unique in the life of the driver: frames that are freed
// and used again have another one.
func (g *GPU) Frames(a gpu.Addr, n uint64) (frames []uint64, gen uint64, err error) {
	g.drv.mu.Lock()
	defer g.drv.mu.Unlock()
	b, base, err := g.blockAt("frames", a, n)
	if err != nil {
		return nil, 0, err
	}
	return b.framesAt(uint64(a-base), n), b.gen, nil
}

// Acquire gives the bytes under [a, a+n), which must lie in one block, until the
// loan is returned. The owner may free the memory meanwhile: for the owner it
// is gone at once, but the bytes are not used again before they are returned.
func (g *GPU) Acquire(a gpu.Addr, n uint64) (*Access, error) {
	g.drv.mu.Lock()
	defer g.drv.mu.Unlock()
	b, base, err := g.blockAt("lend", a, n)
	if err != nil {
		return nil, err
	}
	return g.drv.newAccess(b, uint64(a-base), n), nil
}

// AcquireFrames is Acquire by frame numbers, as Frames gave them: n bytes from off
// in the concatenation of the frames. It fails when the frames have been freed
// since.
func (g *GPU) AcquireFrames(frames []uint64, gen, off, n uint64) (*Access, error) {
	op := "lend frames"
	if total := uint64(len(frames)) * FrameSize; n == 0 || off > total || n > total-off {
		return nil, gpu.Fail(op, gpu.ErrInvalidValue, fmt.Sprintf("bytes [%d:+%d] of %d frames", off, n, len(frames)))
	}
	frames = slices.Clone(frames[off/FrameSize : (off+n+FrameSize-1)/FrameSize])
	off %= FrameSize
	g.drv.mu.Lock()
	defer g.drv.mu.Unlock()
	for _, f := range frames {
		if f >= uint64(len(g.owners)) || g.owners[f] == nil || g.owners[f].gen != gen {
			return nil, gpu.Fail(op, gpu.ErrInvalidValue, fmt.Sprintf("frame %d of GPU %d is not what it was in generation %d", f, g.index, gen))
		}
	}
	b := g.owners[frames[0]]
	b.holds++
	g.drv.accesses++
	part := block{runs: g.runs(frames)}
	return &Access{blk: b, segs: part.segs(off, n), frames: frames, off: off}, nil
}

// OnFree has fn called when the block that holds [a, a+n) is freed, before it
// is gone, in the goroutine that frees it. fn may block and may return loans;
// it must not allocate, free or close. cancel reports whether it came before
// fn was called; it does not wait for fn.
//
// A block that small allocations share is freed with the last of them.
func (g *GPU) OnFree(a gpu.Addr, n uint64, fn func()) (cancel func() bool, err error) {
	d := g.drv
	d.mu.Lock()
	defer d.mu.Unlock()
	b, _, err := g.blockAt("on free", a, n)
	if err != nil {
		return nil, err
	}
	h := &hook{fn}
	b.hooks = append(b.hooks, h)
	return func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		i := slices.Index(b.hooks, h)
		if i < 0 {
			return false
		}
		b.hooks = slices.Delete(b.hooks, i, i+1)
		return true
	}, nil
}
