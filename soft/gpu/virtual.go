package gpu

import (
	"fmt"

	"github.com/culvert-io/culvert/gpu"
)

// Virtual memory in its parts: memory without an address (cuMemCreate),
// addresses without memory (cuMemAddressReserve), and the one mapped at the
// other. Alloc of gpu.KindVirtual does all of it at once.

// Granularity is the unit of sizes and addresses of virtual memory.
const Granularity = blockSize

// A Physical is memory of a card that has no address of its own.
type Physical struct{ blk *block }

// Size is in bytes.
func (p *Physical) Size() uint64 { return p.blk.size }

// GPU is the card whose memory it is.
func (p *Physical) GPU() *GPU { return p.blk.card }

// Create returns n bytes of memory, a multiple of Granularity, whose content is
// undefined. It lives until it was released and is mapped nowhere.
func (g *GPU) Create(n uint64) (*Physical, error) {
	op := fmt.Sprintf("cuMemCreate(%d)", n)
	switch {
	case n == 0 || n%Granularity != 0:
		return nil, gpu.Fail(op, gpu.ErrInvalidValue, fmt.Sprintf("the size must be a multiple of %d", Granularity))
	case n > maxAlloc:
		return nil, gpu.Fail(op, gpu.ErrOutOfMemory, "no machine has that much")
	}
	g.drv.mu.Lock()
	b := g.newBlock(n)
	if b == nil {
		free := g.freeBytes()
		g.drv.mu.Unlock()
		return nil, gpu.Fail(op, gpu.ErrOutOfMemory, fmt.Sprintf("%d bytes free", free))
	}
	b.holds++
	g.drv.mu.Unlock()
	g.arena.dirty(b.frames) // nobody else knows these frames yet
	return &Physical{b}, nil
}

// Release gives the memory back, once it is mapped nowhere. Call it once.
func (p *Physical) Release() {
	d := p.blk.card.drv
	d.mu.Lock()
	defer d.mu.Unlock()
	d.drop(p.blk)
}

// Reserve takes n addresses, a multiple of Granularity, for later mappings.
func (g *GPU) Reserve(n uint64) (gpu.Addr, error) {
	op := fmt.Sprintf("cuMemAddressReserve(%d)", n)
	if n == 0 || n%Granularity != 0 {
		return 0, gpu.Fail(op, gpu.ErrInvalidValue, fmt.Sprintf("the size must be a multiple of %d", Granularity))
	}
	g.drv.mu.Lock()
	defer g.drv.mu.Unlock()
	a, ok := g.window.Take(n, Granularity, nil)
	if !ok {
		return 0, gpu.Fail(op, gpu.ErrOutOfMemory, "no device addresses left")
	}
	return a, nil
}

// Unreserve gives back what Reserve took. Nothing may be mapped there.
func (g *GPU) Unreserve(a gpu.Addr) {
	g.drv.mu.Lock()
	defer g.drv.mu.Unlock()
	g.window.Remove(a)
}

// Map maps all of p at a, which lies in a reservation of p's card and where
// nothing is mapped. The mapping belongs to x and ends with it.
func (x *Device) Map(p *Physical, a gpu.Addr) error {
	if err := x.check("cuMemMap"); err != nil {
		return err
	}
	d := x.ctx.drv
	d.mu.Lock()
	defer d.mu.Unlock()
	if r := d.regions.Overlap(a, p.blk.size); r != nil {
		return gpu.Fail(fmt.Sprintf("cuMemMap(%v, %d)", a, p.blk.size), gpu.ErrInvalidValue, fmt.Sprintf("%d bytes are mapped at %v", r.size, r.base))
	}
	p.blk.live++
	d.regions.Insert(a, p.blk.size, &region{kind: gpu.KindVirtual, base: a, size: p.blk.size, dev: x, blk: p.blk, mapped: true})
	return nil
}

// Unmap ends the mapping at a. The addresses stay reserved. As on hardware it
// waits for the work that was enqueued before.
func (x *Device) Unmap(a gpu.Addr) error {
	op := fmt.Sprintf("cuMemUnmap(%v)", a)
	if err := x.check(op); err != nil {
		return err
	}
	if err := x.ctx.synchronize(op); err != nil {
		return err
	}
	d := x.ctx.drv
	d.mu.Lock()
	r := d.regions.Find(a)
	if r == nil || r.base != a || r.kind != gpu.KindVirtual {
		d.mu.Unlock()
		return gpu.Fail(op, gpu.ErrInvalidValue, "nothing is mapped there")
	}
	hooks := d.detach(r)
	d.mu.Unlock()
	d.finish(r.blk, hooks)
	return nil
}

// A joint is a range over several mappings that follow each other, with parts
// of their blocks.
type joint struct {
	drv   *Driver
	parts []place
	sizes []uint64
}

// joined finds the mappings under [a, a+n); nil when there is a gap. Call with
// Driver.mu held.
func (d *Driver) joined(a gpu.Addr, n uint64) *joint {
	j := &joint{drv: d}
	for n > 0 {
		r := d.regions.Find(a)
		if r == nil || !r.mapped {
			return nil
		}
		k := min(n, uint64(r.end()-a))
		j.parts = append(j.parts, place{r.blk, r.off + uint64(a-r.base)})
		j.sizes = append(j.sizes, k)
		a, n = a+gpu.Addr(k), n-k
	}
	return j
}

// hold makes a block of the range, which holds the blocks under it until it is
// dropped itself. Call with Driver.mu held.
func (j *joint) hold() *block {
	b := &block{holds: 1, end: func() {
		for _, p := range j.parts {
			j.drv.drop(p.blk)
		}
	}}
	for i, p := range j.parts {
		p.blk.holds++
		b.foreign = b.foreign || p.blk.foreign
		for _, seg := range p.blk.segs(p.off, j.sizes[i]) {
			b.runs = append(b.runs, run{b.size, seg})
			b.size += uint64(len(seg))
		}
	}
	return b
}
