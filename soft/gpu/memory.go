package gpu

import (
	"fmt"
	"slices"

	"github.com/culvert-io/culvert/gpu"
)

const (
	smallLimit = 1 << 20 // allocations below it share blocks
	maxAlloc   = 1 << 46 // beyond it sizes would overflow before memory runs out
)

var allocCalls = map[gpu.Kind]string{
	gpu.KindDevice:  "cuMemAlloc",
	gpu.KindVirtual: "cuMemCreate",
	gpu.KindHost:    "cuMemHostAlloc",
	gpu.KindManaged: "cuMemAllocManaged",
}

// allocFlags are the flags that each kind knows.
var allocFlags = map[gpu.Kind]gpu.Flags{
	gpu.KindHost:    gpu.HostPortable | gpu.HostMapped | gpu.HostWriteCombined,
	gpu.KindManaged: gpu.ManagedGlobal | gpu.ManagedHost,
}

// Alloc returns n bytes whose content is undefined.
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
		free := g.freeBytes()
		d.mu.Unlock()
		return 0, gpu.Fail(op(), gpu.ErrOutOfMemory, fmt.Sprintf("%d bytes free, %d asked for", free, r.size))
	}
	d.mu.Unlock()
	if r.blk.small == nil {
		// It may be much, and nobody else knows these frames yet, so that the
		// others need not wait for it.
		g.arena.dirty(r.blk.frames)
	}
	return r.base, nil
}

// allocate finds memory and addresses for r. Call with Driver.mu held.
func (g *GPU) allocate(r *region) bool {
	if r.kind == gpu.KindDevice && r.size < smallLimit {
		return g.allocateSmall(r)
	}
	r.blk = g.newBlock(roundUp(r.size, blockSize))
	if r.blk == nil {
		return false
	}
	if !g.place(r) {
		g.drv.settle(r.blk)
		return false
	}
	return true
}

func (g *GPU) allocateSmall(r *region) bool {
	for _, b := range r.dev.ctx.slabs {
		if a, ok := b.small.take(r.size); ok {
			g.drv.settleIn(r, b, a)
			return true
		}
	}
	b := g.newBlock(blockSize)
	if b == nil {
		return false
	}
	base, ok := g.window.take(blockSize)
	if !ok {
		g.drv.settle(b)
		return false
	}
	g.arena.dirty(b.frames)
	b.small = newSlab(base)
	g.slabs[base] = b
	r.dev.ctx.slabs = append(r.dev.ctx.slabs, b)
	a, _ := b.small.take(r.size)
	g.drv.settleIn(r, b, a)
	return true
}

// settleIn gives r its place in a shared block.
func (d *Driver) settleIn(r *region, b *block, a gpu.Addr) {
	r.blk, r.base, r.off = b, a, uint64(a-b.small.base)
	b.live++
	d.space.insert(r)
}

// place maps r's block at addresses of its own. Call with Driver.mu held.
func (g *GPU) place(r *region) bool {
	span := roundUp(r.size, blockSize)
	a, ok := g.window.take(span)
	if !ok {
		return false
	}
	r.base, r.span = a, span
	r.blk.live++
	g.drv.space.insert(r)
	return true
}

// Free takes an address that Alloc or Import returned. As on hardware it waits
// for the work that was enqueued before.
func (x *Device) Free(a gpu.Addr) error {
	if err := x.check("cuMemFree"); err != nil {
		return err
	}
	op := func() string { return fmt.Sprintf("cuMemFree(%v)", a) }
	if err := x.ctx.synchronize(op()); err != nil {
		return err
	}
	d := x.ctx.drv
	d.mu.Lock()
	r := d.space.find(a)
	code, detail := freeable(x, r, a)
	if code != gpu.Success {
		d.mu.Unlock()
		return gpu.Fail(op(), code, detail)
	}
	hooks := d.detach(r)
	d.mu.Unlock()
	d.finish(r.blk, hooks)
	return nil
}

func freeable(x *Device, r *region, a gpu.Addr) (gpu.Code, string) {
	switch {
	case r == nil:
		return gpu.ErrInvalidValue, "not an address of this driver, or freed before"
	case r.kind == gpu.KindRegistered:
		return gpu.ErrInvalidValue, "registered memory: unregister it"
	case r.base != a:
		return gpu.ErrInvalidValue, fmt.Sprintf("inside the allocation at %v", r.base)
	case r.dev != x:
		return gpu.ErrInvalidValue, "an allocation of another device"
	}
	return gpu.Success, ""
}

// detach takes a region out of the address space, so that nobody can find it
// any more, and holds its block until finish. It returns the hooks to run. Call
// with Driver.mu held.
func (d *Driver) detach(r *region) []*hook {
	d.space.remove(r)
	b := r.blk
	b.live--
	b.holds++
	switch {
	case r.span > 0:
		b.card.window.give(r.base, r.span)
	case b.small != nil:
		b.small.give(r.base, r.size)
	}
	if b.live > 0 {
		return nil
	}
	if b.small != nil {
		r.dev.ctx.slabs = slices.DeleteFunc(r.dev.ctx.slabs, func(s *block) bool { return s == b })
		delete(b.card.slabs, b.small.base)
		b.card.window.give(b.small.base, blockSize)
	}
	hooks := b.hooks
	b.hooks = nil
	return hooks
}

// finish runs the hooks and lets the memory go.
func (d *Driver) finish(b *block, hooks []*hook) {
	for _, h := range hooks {
		h.fn()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.drop(b)
}

// MemInfo says how much memory the card has and how much of it is free.
func (x *Device) MemInfo() (free, total uint64, err error) {
	if err := x.check("cuMemGetInfo"); err != nil {
		return 0, 0, err
	}
	x.ctx.drv.mu.Lock()
	defer x.ctx.drv.mu.Unlock()
	return x.ctx.card.freeBytes(), x.ctx.card.model.Memory, nil
}

// Pointer looks an address up.
func (x *Device) Pointer(a gpu.Addr) (gpu.Pointer, error) {
	// A lost context does not matter to a look-up.
	if x.closed.Load() {
		return gpu.Pointer{}, gpu.Fail("cuPointerGetAttributes", gpu.ErrContextDestroyed, "the device was closed")
	}
	x.ctx.drv.mu.Lock()
	defer x.ctx.drv.mu.Unlock()
	r := x.ctx.drv.space.find(a)
	if r == nil {
		return gpu.Pointer{}, nil
	}
	p := gpu.Pointer{Kind: r.kind, Device: r.dev.ctx.card.index, Base: r.base, Size: r.size, SyncMemops: r.sync}
	if !r.kind.OnDevice() {
		p.Host = uintptr(a)
	}
	return p, nil
}

// SetSyncMemops notes the wish; synchronous operations complete before they
// return in any case. It waits for what is pending, as on hardware.
func (x *Device) SetSyncMemops(a gpu.Addr, on bool) error {
	if err := x.check("cuPointerSetAttribute(SYNC_MEMOPS)"); err != nil {
		return err
	}
	op := func() string { return fmt.Sprintf("cuPointerSetAttribute(%v, SYNC_MEMOPS, %t)", a, on) }
	if err := x.ctx.synchronize(op()); err != nil {
		return err
	}
	x.ctx.drv.mu.Lock()
	defer x.ctx.drv.mu.Unlock()
	r := x.ctx.drv.space.find(a)
	switch {
	case r == nil:
		return gpu.Fail(op(), gpu.ErrInvalidValue, "not an address of this driver")
	case r.kind == gpu.KindVirtual:
		return gpu.Fail(op(), gpu.ErrNotSupported, "virtual memory")
	}
	r.sync = on
	return nil
}
