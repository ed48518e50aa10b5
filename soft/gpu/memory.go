package gpu

import (
	"fmt"
	"slices"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/soft/internal/addrspace"
)

const (
	smallLimit = 1 << 20 // allocations below it share blocks
	maxAlloc   = 1 << 46 // beyond it computations with sizes could overflow
)

var allocCalls = map[gpu.Kind]string{
	gpu.KindDevice:  "cuMemAlloc",
	gpu.KindVirtual: "cuMemCreate",
	gpu.KindHost:    "cuMemHostAlloc",
	gpu.KindManaged: "cuMemAllocManaged",
}

// allocFlags are the flags of each kind.
var allocFlags = map[gpu.Kind]gpu.Flags{
	gpu.KindHost:    gpu.HostPortable | gpu.HostMapped | gpu.HostWriteCombined,
	gpu.KindManaged: gpu.ManagedGlobal | gpu.ManagedHost,
}

// Alloc allocates n bytes with undefined content.
func (x *Device) Alloc(k gpu.Kind, n uint64, f gpu.Flags) (gpu.Addr, error) {
	call, ok := allocCalls[k]
	if !ok {
		return 0, gpu.Fail("alloc", gpu.ErrInvalidValue, fmt.Sprintf("cannot allocate memory of kind %v", k))
	}
	op := func() string { return fmt.Sprintf("%s(%d)", call, n) }
	if err := x.check(call); err != nil {
		return 0, err
	}
	switch {
	case n == 0:
		return 0, gpu.Fail(op(), gpu.ErrInvalidValue, "")
	case f&^allocFlags[k] != 0 || f == gpu.ManagedGlobal|gpu.ManagedHost && k == gpu.KindManaged:
		return 0, gpu.Fail(op(), gpu.ErrInvalidValue, fmt.Sprintf("flags %#x", uint32(f)))
	case n > maxAlloc:
		return 0, gpu.Fail(op(), gpu.ErrOutOfMemory, "no machine has that much")
	}
	r := &region{kind: k, size: n, flags: f, dev: x}
	if !k.OnDevice() {
		return x.allocHost(op(), r)
	}
	return x.allocDevice(op, r)
}

func (x *Device) allocDevice(op func() string, r *region) (gpu.Addr, error) {
	g, d := x.ctx.card, x.ctx.drv
	if r.kind == gpu.KindVirtual {
		r.size = roundUp(r.size, blockSize)
	}
	d.mu.Lock()
	if !g.allocate(r) {
		why := g.shortage(r.size)
		d.mu.Unlock()
		return 0, gpu.Fail(op(), gpu.ErrOutOfMemory, why)
	}
	d.mu.Unlock()
	if r.blk.small == nil {
		// This can take long, and the frames are not reachable yet: other calls need not
		// wait for it.
		g.arena.prepare(r.blk.frames)
	}
	return r.base, nil
}

// allocate finds memory and addresses for r. Call with Driver.mu held.
func (g *GPU) allocate(r *region) bool {
	if r.kind == gpu.KindDevice && r.size < smallLimit {
		return g.allocateSmall(r)
	}
	r.blk = g.newBlock(roundUp(r.size, blockSize))
	return r.blk != nil && g.place(r)
}

// place maps r's block at addresses of its own. Call with Driver.mu held.
func (g *GPU) place(r *region) bool {
	if !g.address(r) {
		return false
	}
	r.blk.live++
	g.drv.regions.Insert(r.base, r.size, r)
	return true
}

// address gives r device addresses, or frees its block if nothing else uses it.
func (g *GPU) address(r *region) (ok bool) {
	if r.base, ok = g.window.Take(roundUp(r.size, blockSize), blockSize, r); !ok {
		g.drv.settle(r.blk)
	}
	return ok
}

func (g *GPU) allocateSmall(r *region) bool {
	c := r.dev.ctx
	if slices.ContainsFunc(c.slabs, func(b *block) bool { return g.drv.placeIn(b, r) }) {
		return true
	}
	b := g.newBlock(blockSize)
	if b == nil {
		return false
	}
	whole := &region{size: blockSize, blk: b}
	if !g.address(whole) {
		return false
	}
	g.arena.prepare(b.frames)
	b.small = &slab{base: whole.base, used: addrspace.New[gpu.Addr, *region](whole.base, whole.end())}
	c.slabs = append(c.slabs, b)
	return g.drv.placeIn(b, r)
}

// placeIn gives r addresses in a shared block, if there is room.
func (d *Driver) placeIn(b *block, r *region) bool {
	a, ok := b.small.used.TakeLowest(r.size, smallAlign, r)
	if !ok {
		return false
	}
	r.blk, r.base, r.off = b, a, uint64(a-b.small.base)
	if b.card.arena.zero { // the place may have been used before
		for _, seg := range b.segs(r.off, r.size) {
			clear(seg)
		}
	}
	b.live++
	d.regions.Insert(r.base, r.size, r)
	return true
}

// Free frees an address that Alloc or Import returned. As on hardware it waits for the
// work that was enqueued before.
func (x *Device) Free(a gpu.Addr) error {
	return x.remove(fmt.Sprintf("cuMemFree(%v)", a), a, func(r *region) error {
		switch {
		case r == nil:
			return refuse(gpu.ErrInvalidValue, "not an address of this driver, or freed before")
		case r.kind == gpu.KindRegistered:
			return refuse(gpu.ErrInvalidValue, "registered memory: unregister it")
		case r.opens > 0:
			return refuse(gpu.ErrInvalidValue, "memory of another process: close its IPC handle")
		case r.base != a:
			return refuse(gpu.ErrInvalidValue, "inside the allocation at %v", r.base)
		case r.dev != x:
			return refuse(gpu.ErrInvalidValue, "an allocation of another device")
		}
		return nil
	})
}

// remove waits for the work of the context and removes the region at a, unless check
// returns an error.
func (x *Device) remove(op string, a gpu.Addr, check func(*region) error) error {
	if err := x.synchronize(op); err != nil {
		return err
	}
	var err error
	x.ctx.drv.remove(func() *region {
		r := x.ctx.drv.regions.Find(a)
		if err = check(r); err != nil {
			return nil
		}
		return r
	})
	return fail(op, err)
}

// removeAll removes the regions that match. Their work must be done.
func (d *Driver) removeAll(match func(*region) bool) {
	for d.remove(func() *region {
		for r := range d.regions.All() {
			if match(r) {
				return r
			}
		}
		return nil
	}) {
	}
}

// remove removes the region that find returns, if any, and runs its hooks. find is called
// with Driver.mu held.
func (d *Driver) remove(find func() *region) (found bool) {
	d.mu.Lock()
	r := find()
	if r == nil {
		d.mu.Unlock()
		return false
	}
	hooks := d.detach(r)
	d.mu.Unlock()
	for _, h := range hooks {
		h.fn()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sweep() // for other processes: this one sweeps when it needs memory
	d.drop(r.blk)
	return true
}

// detach removes a region from the address space and holds its block. It returns the
// hooks to run. Call with Driver.mu held.
func (d *Driver) detach(r *region) []*hook {
	d.regions.Remove(r.base)
	b := r.blk
	b.live--
	b.holds++
	switch {
	case r.kind == gpu.KindRegistered:
		d.unlockPages(r)
	case b.small != nil:
		b.small.freed = append(b.small.freed, r.base)
	case r.kind.OnDevice() && !r.mapped:
		b.card.window.Remove(r.base - gpu.Addr(r.off)) // all of the block has addresses
		delete(d.opened, r.opening)
	}
	if b.live > 0 {
		return nil
	}
	if b.small != nil {
		r.dev.ctx.slabs = slices.DeleteFunc(r.dev.ctx.slabs, func(s *block) bool { return s == b })
		b.card.window.Remove(b.small.base)
	}
	hooks := b.hooks
	b.hooks = nil
	return hooks
}

// MemInfo returns the size of the card's memory and of its free part.
func (x *Device) MemInfo() (free, total uint64, err error) {
	if err := x.check("cuMemGetInfo"); err != nil {
		return 0, 0, err
	}
	x.ctx.drv.mu.Lock()
	defer x.ctx.drv.mu.Unlock()
	return x.ctx.card.freeBytes(), x.ctx.card.model.Memory, nil
}

// Pointer returns what is at an address.
func (x *Device) Pointer(a gpu.Addr) (gpu.Pointer, error) {
	// It works in a lost context, too.
	if x.closed.Load() {
		return gpu.Pointer{}, gpu.Fail("cuPointerGetAttributes", gpu.ErrContextDestroyed, "the device was closed")
	}
	x.ctx.drv.mu.Lock()
	defer x.ctx.drv.mu.Unlock()
	r := x.ctx.drv.regions.Find(a)
	if r == nil {
		return gpu.Pointer{}, nil
	}
	p := gpu.Pointer{Kind: r.pointerKind(), Device: r.dev.ctx.card.index, Base: r.base, Size: r.size, SyncMemops: r.sync}
	if !r.kind.OnDevice() {
		p.Host = uintptr(a)
	}
	return p, nil
}

// SetSyncMemops sets the attribute, which has no effect: synchronous operations complete
// before they return in any case. As on hardware it waits for pending work.
func (x *Device) SetSyncMemops(a gpu.Addr, on bool) error {
	op := fmt.Sprintf("cuPointerSetAttribute(%v, SYNC_MEMOPS, %t)", a, on)
	if err := x.synchronize(op); err != nil {
		return err
	}
	x.ctx.drv.mu.Lock()
	defer x.ctx.drv.mu.Unlock()
	r := x.ctx.drv.regions.Find(a)
	switch {
	case r == nil:
		return gpu.Fail(op, gpu.ErrInvalidValue, "not an address of this driver")
	case r.kind == gpu.KindVirtual:
		return gpu.Fail(op, gpu.ErrNotSupported, "virtual memory")
	}
	r.sync = on
	return nil
}
