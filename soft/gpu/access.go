package gpu

import (
	"fmt"
	"slices"
	"sync"

	"github.com/culvert-io/culvert/gpu"
)

// An Access is device memory in use by a device, a kernel module or an export.
type Access struct {
	blk    *block
	off, n uint64 // in the block
	once   sync.Once
}

// newAccess gives access to n bytes from off. Call with Driver.mu held.
func (d *Driver) newAccess(b *block, off, n uint64) *Access {
	b.holds++
	d.accesses++
	return &Access{blk: b, off: off, n: n}
}

// Part gives access to n bytes from off of a, until its own Release.
func (a *Access) Part(off, n uint64) (*Access, error) {
	if n == 0 || off > a.n || n > a.n-off {
		return nil, gpu.Fail("acquire", gpu.ErrInvalidValue, fmt.Sprintf("bytes [%d:+%d] of %d", off, n, a.n))
	}
	d := a.blk.card.drv
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.newAccess(a.blk, a.off+off, n), nil
}

// Len returns the number of bytes.
func (a *Access) Len() uint64 { return a.n }

// GPU returns the card whose memory it is.
func (a *Access) GPU() *GPU { return a.blk.card }

// Generation returns that of the block, see [GPU.Block].
func (a *Access) Generation() uint64 { return a.blk.gen }

// Segs returns the bytes in order. Neighbouring frames are joined.
func (a *Access) Segs() [][]byte { return a.blk.segs(a.off, a.n) }

// Frames returns the numbers of the frames that the bytes lie in, in which the first
// byte is at off. A frame's physical address is its number times FrameSize.
func (a *Access) Frames() (frames []uint64, off uint64) {
	return a.blk.frames[a.off/FrameSize : (a.off+a.n+FrameSize-1)/FrameSize], a.off % FrameSize
}

// Release ends the access; Segs must not be used any more. Further calls do nothing.
func (a *Access) Release() {
	a.once.Do(func() {
		d := a.blk.card.drv
		d.mu.Lock()
		defer d.mu.Unlock()
		d.accesses--
		d.drop(a.blk)
	})
}

// drop releases a hold. Call with Driver.mu held.
func (d *Driver) drop(b *block) {
	b.holds--
	d.settle(b)
}

// settle frees a block that is neither allocated nor held, and the small allocations that
// were freed while it was held. Call with Driver.mu held.
func (d *Driver) settle(b *block) {
	switch {
	case b.holds > 0:
	case b.live > 0:
		if b.small != nil {
			b.small.reuse()
		}
	case b.card != nil:
		if b.object != nil {
			delete(d.known, *b.object)
		}
		b.card.frames.give(b.frames)
	default:
		b.end()
	}
}

// blockAt returns the region of the block under [a, a+n), which is larger than an
// allocation in it. Call with Driver.mu held.
func (g *GPU) blockAt(op string, a gpu.Addr, n uint64) (*region, error) {
	r := g.window.Find(a)
	if r == nil {
		r = g.drv.regions.Find(a) // mapped into a reservation
	}
	detail := ""
	switch {
	case r == nil || r.blk.card != g:
		detail = fmt.Sprintf("no memory of GPU %d there", g.index)
	case n == 0 || n > r.blk.size-uint64(a-r.base):
		detail = fmt.Sprintf("the range must lie in one block: %d bytes at %v", r.blk.size, r.base)
	default:
		return r, nil
	}
	return nil, gpu.Fail(fmt.Sprintf("%s(%v, %d)", op, a, n), gpu.ErrInvalidValue, detail)
}

// Block returns the block of memory (the unit that the resource manager knows) that a
// lies in: one large allocation, or 2 MiB shared by small ones. Its generation is unique
// in the life of the driver: memory that is freed and used again has another one.
func (g *GPU) Block(a gpu.Addr) (base gpu.Addr, size, gen uint64, err error) {
	g.drv.mu.Lock()
	defer g.drv.mu.Unlock()
	r, err := g.blockAt("block", a, 1)
	if err != nil {
		return 0, 0, 0, err
	}
	return r.base, r.blk.size, r.blk.gen, nil
}

// Acquire gives access to the bytes under [a, a+n), which must lie in one block, until
// Release. The owner may free the memory meanwhile: for the owner it is gone at once,
// but the bytes are not used again before the release.
func (g *GPU) Acquire(a gpu.Addr, n uint64) (*Access, error) {
	g.drv.mu.Lock()
	defer g.drv.mu.Unlock()
	r, err := g.blockAt("acquire", a, n)
	if err != nil {
		return nil, err
	}
	return g.drv.newAccess(r.blk, uint64(a-r.base), n), nil
}

// OnFree calls fn when the block of [a, a+n) is freed, before its memory is reused, in
// the goroutine that frees it. fn may block and may release accesses; it must not
// allocate, free or close. cancel reports whether fn was not called; it does not wait.
//
// A block that small allocations share is freed with the last of them.
func (g *GPU) OnFree(a gpu.Addr, n uint64, fn func()) (cancel func() bool, err error) {
	d := g.drv
	d.mu.Lock()
	defer d.mu.Unlock()
	r, err := g.blockAt("on free", a, n)
	if err != nil {
		return nil, err
	}
	b, h := r.blk, &hook{fn}
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
