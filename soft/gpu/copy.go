package gpu

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"

	"github.com/culvert-io/culvert/gpu"
)

// A place is where bytes are: somewhere in a block that is held.
type place struct {
	blk *block
	off uint64
}

func (p place) cursor() cursor { return p.blk.from(p.off) }

// A want says what an operation can do with an address.
type want uint8

const (
	wantKnown want = iota // memory that the driver knows
	wantAny               // or the host's, known or not
	wantWord              // memory that stays where it is, for streams to watch
)

// resolve finds the n bytes at a and holds them. Call with d.mu held.
func (d *Driver) resolve(a gpu.Addr, n uint64, w want) (place, gpu.Code, string) {
	r := d.regions.Find(a)
	switch {
	case r != nil && w == wantWord && r.kind == gpu.KindManaged:
		return place{}, gpu.ErrInvalidValue, "managed memory moves"
	case r != nil && r.covers(a, n):
		r.blk.holds++
		return place{r.blk, r.off + uint64(a-r.base)}, gpu.Success, ""
	case r != nil && r.mapped && d.joined(a, n) != nil:
		return place{d.joined(a, n).hold(), 0}, gpu.Success, ""
	case r != nil:
		return place{}, gpu.ErrInvalidValue, fmt.Sprintf("%d bytes at %v leave the allocation of %d bytes at %v", n, a, r.size, r.base)
	case w == wantAny && d.hostRange(a, n):
		b := hostBlock(gpu.HostBytes(a, n), true, func() {})
		b.plain = true
		b.holds++
		return place{b, 0}, gpu.Success, ""
	}
	return place{}, gpu.ErrInvalidValue, fmt.Sprintf("no memory that the driver knows at %v", a)
}

// userEnd is where the addresses of processes end.
const userEnd = 1 << 47

// hostRange reports whether [a, a+n) could be plain memory of the process.
func (d *Driver) hostRange(a gpu.Addr, n uint64) bool {
	inside := a >= hostPage && a < userEnd && n < userEnd-uint64(a)
	return inside && !d.deviceAddrs(a, n) && d.regions.Overlap(a, n) == nil
}

// deviceAddrs reports whether any of [a, a+n) is a device address.
func (d *Driver) deviceAddrs(a gpu.Addr, n uint64) bool {
	return slices.ContainsFunc(d.gpus, func(g *GPU) bool { return g.window.overlaps(a, n) })
}

// anyHost is what a copy or a fill on the card accepts: with pageable access
// all memory of the process is the card's, too.
func (c *context) anyHost() want {
	if c.card.has(gpu.AttrPageableMemoryAccess) {
		return wantAny
	}
	return wantKnown
}

// acquire resolves one address.
func (d *Driver) acquire(a gpu.Addr, n uint64, w want) (place, gpu.Code, string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.resolve(a, n, w)
}

// acquire2 resolves both ends of a copy, or none.
func (d *Driver) acquire2(dst, src gpu.Addr, n uint64) (to, from place, c gpu.Code, detail string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if to, c, detail = d.resolve(dst, n, wantAny); c != gpu.Success {
		return to, from, c, detail
	}
	if from, c, detail = d.resolve(src, n, wantAny); c != gpu.Success {
		d.drop(to.blk)
	}
	return to, from, c, detail
}

// yield lets go of what was acquired.
func (d *Driver) yield(p, q place) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.drop(p.blk)
	if q.blk != nil {
		d.drop(q.blk)
	}
}

// CopyIn copies from host to GPU memory.
func (x *Device) CopyIn(dst gpu.Addr, src []byte) error {
	const call = "cuMemcpyHtoD"
	if err := x.check(call); err != nil || len(src) == 0 {
		return err
	}
	x.ctx.settle()
	n := uint64(len(src))
	d := x.ctx.drv
	p, c, detail := d.acquire(dst, n, x.ctx.anyHost())
	if c == gpu.Success {
		c, detail = move(p.cursor(), cursor{now: src}, n, p.blk.foreign)
		d.yield(p, place{})
	}
	if c != gpu.Success {
		return gpu.Fail(fmt.Sprintf("%s(%v, %d)", call, dst, n), c, detail)
	}
	return nil
}

// CopyOut copies from GPU to host memory.
func (x *Device) CopyOut(dst []byte, src gpu.Addr) error {
	const call = "cuMemcpyDtoH"
	if err := x.check(call); err != nil || len(dst) == 0 {
		return err
	}
	x.ctx.settle()
	n := uint64(len(dst))
	d := x.ctx.drv
	p, c, detail := d.acquire(src, n, x.ctx.anyHost())
	if c == gpu.Success {
		c, detail = move(cursor{now: dst}, p.cursor(), n, p.blk.foreign)
		d.yield(p, place{})
	}
	if c != gpu.Success {
		return gpu.Fail(fmt.Sprintf("%s(%v, %d)", call, src, n), c, detail)
	}
	return nil
}

// Copy copies between any two addresses.
func (x *Device) Copy(dst, src gpu.Addr, n uint64) error {
	const call = "cuMemcpy"
	if err := x.check(call); err != nil || n == 0 {
		return err
	}
	x.ctx.settle()
	d := x.ctx.drv
	to, from, c, detail := d.acquire2(dst, src, n)
	if c == gpu.Success {
		c, detail = move(to.cursor(), from.cursor(), n, to.blk.foreign || from.blk.foreign)
		d.yield(to, from)
	}
	if c != gpu.Success {
		return gpu.Fail(fmt.Sprintf("%s(%v, %v, %d)", call, dst, src, n), c, detail)
	}
	return nil
}

// step bounds one memmove, during which the garbage collector cannot stop the
// goroutine.
const step = 16 << 20

// move copies n bytes. Foreign memory may turn out not to be there.
func move(dst, src cursor, n uint64, foreign bool) (gpu.Code, string) {
	if foreign {
		return moveGuarded(dst, src, n)
	}
	moveBytes(dst, src, n)
	return gpu.Success, ""
}

func moveBytes(dst, src cursor, n uint64) {
	for n > 0 {
		k := int(min(n, step))
		k = copy(dst.now[:min(k, len(dst.now))], src.now)
		dst.skip(k)
		src.skip(k)
		n -= uint64(k)
	}
}

func moveGuarded(dst, src cursor, n uint64) (c gpu.Code, detail string) {
	defer func() {
		if why := fault(recover()); why != "" {
			c, detail = gpu.ErrInvalidValue, why
		}
	}()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	moveBytes(dst, src, n)
	return gpu.Success, ""
}

// fault describes a recovered memory fault. It is "" for nil, and passes any
// other panic on.
func fault(r any) string {
	if r == nil {
		return ""
	}
	if e, ok := r.(interface {
		runtime.Error
		Addr() uintptr
	}); ok {
		return fmt.Sprintf("fault at %#x", e.Addr())
	}
	panic(r)
}
