package gpu

import (
	"fmt"

	"github.com/culvert-io/culvert/gpu"
)

// Virtual memory consists of memory without an address (cuMemCreate) and addresses
// without memory (cuMemAddressReserve), which Map connects. Alloc of gpu.KindVirtual does
// all of it.

// Granularity is the unit of sizes and addresses of virtual memory.
const Granularity = blockSize

// A Physical is memory of a card without an address.
type Physical struct{ blk *block }

// GPU returns the card that has the memory.
func (p *Physical) GPU() *GPU { return p.blk.card }

// Size returns the number of bytes.
func (p *Physical) Size() uint64 { return p.blk.size }

// Create allocates n bytes, a multiple of Granularity, with undefined content. They are
// freed after Release and the last Unmap. Memory that is not exportable has no descriptor,
// as that of cuMemCreate without a handle type.
func (g *GPU) Create(n uint64, exportable bool) (*Physical, error) {
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
		why := g.shortage(n)
		g.drv.mu.Unlock()
		return nil, gpu.Fail(op, gpu.ErrOutOfMemory, why)
	}
	b.holds++
	b.private = !exportable
	g.drv.mu.Unlock()
	g.arena.prepare(b.frames) // without the lock: the frames are not reachable yet
	return &Physical{b}, nil
}

// Release frees the memory when it is not mapped any more. Call it once.
func (p *Physical) Release() {
	d := p.blk.card.drv
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sweep()
	d.drop(p.blk)
}

// Reserve allocates n addresses, a multiple of Granularity, for mappings.
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

// Reservation returns the reserved addresses that a is one of, mapped or not; size is 0 if
// it is not reserved.
func (d *Driver) Reservation(a gpu.Addr) (base gpu.Addr, size uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, g := range d.gpus {
		if g.window.overlaps(a, 1) && g.window.Find(a) == nil { // not an allocation
			return g.window.Range(a)
		}
	}
	return 0, 0
}

// Unreserve frees addresses that Reserve returned. Nothing may be mapped there.
func (g *GPU) Unreserve(a gpu.Addr) {
	g.drv.mu.Lock()
	defer g.drv.mu.Unlock()
	g.window.Remove(a)
}

// Map maps all of p at a, which must be reserved and free. The mapping belongs to x and
// ends with it.
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

// Unmap removes the mapping at a. The addresses stay reserved. As on hardware it waits for
// the work that was enqueued before.
func (x *Device) Unmap(a gpu.Addr) error {
	return x.remove(fmt.Sprintf("cuMemUnmap(%v)", a), a, func(r *region) error {
		if r == nil || r.base != a || r.kind != gpu.KindVirtual {
			return refuse(gpu.ErrInvalidValue, "no mapping there")
		}
		return nil
	})
}

// holdMapped holds the adjacent mappings under [a, a+n) and returns them as one block, or
// nil if there is a gap. Call with Driver.mu held.
func (d *Driver) holdMapped(a gpu.Addr, n uint64) *block {
	b := &block{holds: 1}
	var parts []*block
	for n > 0 {
		r := d.regions.Find(a)
		if r == nil || !r.mapped {
			return nil
		}
		k := min(n, uint64(r.end()-a))
		for _, seg := range r.blk.segs(r.off+uint64(a-r.base), k) {
			b.runs = append(b.runs, run{b.size, seg})
			b.size += uint64(len(seg))
		}
		b.foreign = b.foreign || r.blk.foreign
		parts = append(parts, r.blk)
		a, n = a+gpu.Addr(k), n-k
	}
	for _, p := range parts {
		p.holds++
	}
	b.end = func() {
		for _, p := range parts {
			d.drop(p)
		}
	}
	return b
}
