package gpu

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"

	"github.com/culvert-io/culvert/gpu"
)

// A place is the address of bytes: an offset in a block that is held.
type place struct {
	blk *block
	off uint64
}

func (p place) cursor() cursor { return p.blk.from(p.off) }

// A want is the kind of memory that an operation accepts.
type want uint8

const (
	wantKnown want = iota // memory that the driver knows
	wantAny               // or any of the host
	wantWord              // memory that does not move, for streams to watch
)

// resolve finds the n bytes at a and holds them. Call with d.mu held.
func (d *Driver) resolve(a gpu.Addr, n uint64, w want) (place, error) {
	r := d.regions.Find(a)
	switch {
	case r != nil && w == wantWord && r.kind == gpu.KindManaged:
		return place{}, refuse(gpu.ErrInvalidValue, "managed memory moves")
	case r != nil && r.covers(a, n):
		r.blk.holds++
		return place{r.blk, r.off + uint64(a-r.base)}, nil
	case r == nil && w == wantAny && d.hostRange(a, n):
		b := hostBlock(gpu.HostBytes(a, n), true, func() {})
		b.plain = true
		b.holds++
		return place{b, 0}, nil
	case r == nil:
		return place{}, refuse(gpu.ErrInvalidValue, "no memory that the driver knows at %v", a)
	}
	if b := d.holdMapped(a, n); b != nil {
		return place{b, 0}, nil
	}
	return place{}, refuse(gpu.ErrInvalidValue, "%d bytes at %v leave the allocation of %d bytes at %v", n, a, r.size, r.base)
}

// userEnd is the end of the addresses of processes.
const userEnd = 1 << 47

// hostRange reports whether [a, a+n) can be plain memory of the process.
func (d *Driver) hostRange(a gpu.Addr, n uint64) bool {
	inside := a >= hostPage && a < userEnd && n < userEnd-uint64(a)
	return inside && !d.deviceAddrs(a, n) && d.regions.Overlap(a, n) == nil
}

// deviceAddrs reports whether any of [a, a+n) is a device address.
func (d *Driver) deviceAddrs(a gpu.Addr, n uint64) bool {
	return slices.ContainsFunc(d.gpus, func(g *GPU) bool { return g.window.overlaps(a, n) })
}

// anyHost returns what a copy or a fill on the card accepts: with pageable access this
// is all memory of the process.
func (c *context) anyHost() want {
	if c.card.has(gpu.AttrPageableMemoryAccess) {
		return wantAny
	}
	return wantKnown
}

// acquire resolves one address.
func (d *Driver) acquire(a gpu.Addr, n uint64, w want) (place, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.resolve(a, n, w)
}

// acquire2 resolves both addresses of a copy, or none.
func (d *Driver) acquire2(dst, src gpu.Addr, n uint64) (to, from place, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if to, err = d.resolve(dst, n, wantAny); err != nil {
		return to, from, err
	}
	if from, err = d.resolve(src, n, wantAny); err != nil {
		d.drop(to.blk)
	}
	return to, from, err
}

// release releases what was acquired.
func (d *Driver) release(places ...place) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range places {
		if p.blk != nil {
			d.drop(p.blk)
		}
	}
}

// CopyIn copies from host to GPU memory.
func (x *Device) CopyIn(dst gpu.Addr, src []byte) error {
	return x.copyHost("cuMemcpyHtoD", dst, src, true)
}

// CopyOut copies from GPU to host memory.
func (x *Device) CopyOut(dst []byte, src gpu.Addr) error {
	return x.copyHost("cuMemcpyDtoH", src, dst, false)
}

func (x *Device) copyHost(call string, a gpu.Addr, host []byte, in bool) error {
	if err := x.check(call); err != nil || len(host) == 0 {
		return err
	}
	x.ctx.waitBlocking()
	n := uint64(len(host))
	p, err := x.ctx.drv.acquire(a, n, x.ctx.anyHost())
	if err == nil {
		dst, src := p.cursor(), cursor{now: host}
		if !in {
			dst, src = src, dst
		}
		err = guard(p.blk.foreign, func() { move(dst, src, n) })
		x.ctx.drv.release(p)
	}
	if err != nil {
		return fail(fmt.Sprintf("%s(%v, %d)", call, a, n), err)
	}
	return nil
}

// Copy copies between any two addresses.
func (x *Device) Copy(dst, src gpu.Addr, n uint64) error {
	const call = "cuMemcpy"
	if err := x.check(call); err != nil || n == 0 {
		return err
	}
	x.ctx.waitBlocking()
	to, from, err := x.ctx.drv.acquire2(dst, src, n)
	if err == nil {
		err = guard(to.blk.foreign || from.blk.foreign, func() { move(to.cursor(), from.cursor(), n) })
		x.ctx.drv.release(to, from)
	}
	if err != nil {
		return fail(fmt.Sprintf("%s(%v, %v, %d)", call, dst, src, n), err)
	}
	return nil
}

// step limits one memmove, during which the garbage collector cannot stop the
// goroutine.
const step = 16 << 20

// move copies n bytes.
func move(dst, src cursor, n uint64) {
	for n > 0 {
		k := int(min(n, step))
		k = copy(dst.now[:min(k, len(dst.now))], src.now)
		dst.skip(k)
		src.skip(k)
		n -= uint64(k)
	}
}

// guard runs fn. Foreign memory may be unmapped: a fault in it becomes an error.
func guard(foreign bool, fn func()) (err error) {
	if foreign {
		defer func() {
			if why := fault(recover()); why != "" {
				err = refuse(gpu.ErrInvalidValue, "%s", why)
			}
		}()
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	}
	fn()
	return nil
}

// fault describes a recovered memory fault. It returns "" for nil, and passes any other
// panic on.
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
