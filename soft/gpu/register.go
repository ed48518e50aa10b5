package gpu

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	abi "github.com/culvert-io/culvert/internal/abi/cuda"
)

const registerFlags = gpu.RegisterPortable | gpu.RegisterDeviceMap | gpu.RegisterIOMemory | gpu.RegisterReadOnly

// Register pins n bytes of host memory in place. It refuses what the kernel
// would refuse to pin for a GPU (see pinnable).
func (x *Device) Register(host uintptr, n uint64, f gpu.Flags) error {
	op := fmt.Sprintf("cuMemHostRegister(%#x, %d, %#x)", host, n, uint32(f))
	if err := x.check(op); err != nil {
		return err
	}
	a, g, d := gpu.Addr(host), x.ctx.card, x.ctx.drv
	switch {
	case host == 0 || n == 0:
		return gpu.Fail(op, gpu.ErrInvalidValue, "not a range of memory")
	case host >= userEnd || n > userEnd-uint64(host):
		return gpu.Fail(op, gpu.ErrNotSupported, "processes have no such addresses")
	case f&^registerFlags != 0:
		return gpu.Fail(op, gpu.ErrInvalidValue, "unknown flags")
	case !g.has(abi.AttrHostRegister):
		return gpu.Fail(op, gpu.ErrNotSupported, g.model.Name+" has no HOST_REGISTER_SUPPORTED")
	case f&gpu.RegisterReadOnly != 0 && !g.has(abi.AttrReadOnlyHostRegister):
		return gpu.Fail(op, gpu.ErrNotSupported, g.model.Name+" has no READ_ONLY_HOST_REGISTER_SUPPORTED")
	}
	if code, detail := d.registrable(a, n); code != gpu.Success {
		return gpu.Fail(op, code, detail)
	}
	if why := pinnable(host, n, f); why != "" {
		return gpu.Fail(op, gpu.ErrInvalidValue, why)
	}
	b := gpu.HostBytes(a, n)
	r := &region{kind: gpu.KindRegistered, base: a, size: n, flags: f, dev: x}
	r.blk = hostBlock(b, true, func() {})
	r.blk.live++
	d.mu.Lock()
	defer d.mu.Unlock()
	if code, detail := d.registrableLocked(a, n); code != gpu.Success { // another call was faster
		return gpu.Fail(op, code, detail)
	}
	d.regions.Insert(r.base, r.size, r)
	if d.cfg.Backing == Mapped && f&gpu.RegisterIOMemory == 0 {
		d.lock.foreign(b)
	}
	return nil
}

func (d *Driver) registrable(a gpu.Addr, n uint64) (gpu.Code, string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.registrableLocked(a, n)
}

func (d *Driver) registrableLocked(a gpu.Addr, n uint64) (gpu.Code, string) {
	if d.deviceAddrs(a, n) {
		return gpu.ErrInvalidValue, "device addresses"
	}
	if r := d.regions.Overlap(a, n); r != nil {
		code := gpu.ErrInvalidValue
		if r.kind == gpu.KindRegistered {
			code = gpu.ErrHostMemoryAlreadyRegistered
		}
		return code, fmt.Sprintf("%v memory, %d bytes at %v", r.kind, r.size, r.base)
	}
	return gpu.Success, ""
}

// Unregister takes the address that was registered.
func (x *Device) Unregister(host uintptr) error {
	op := fmt.Sprintf("cuMemHostUnregister(%#x)", host)
	if err := x.check(op); err != nil {
		return err
	}
	if err := x.ctx.synchronize(op); err != nil {
		return err
	}
	d := x.ctx.drv
	d.mu.Lock()
	r := d.regions.Find(gpu.Addr(host))
	if code, detail := unregistrable(r, gpu.Addr(host)); code != gpu.Success {
		d.mu.Unlock()
		return gpu.Fail(op, code, detail)
	}
	d.unlockPages(r)
	hooks := d.detach(r)
	d.mu.Unlock()
	d.finish(r.blk, hooks)
	return nil
}

func unregistrable(r *region, a gpu.Addr) (gpu.Code, string) {
	switch {
	case a == 0:
		return gpu.ErrInvalidValue, ""
	case r == nil:
		return gpu.ErrHostMemoryNotRegistered, ""
	case r.kind != gpu.KindRegistered:
		return gpu.ErrInvalidValue, fmt.Sprintf("this is %v memory", r.kind)
	case r.base != a:
		return gpu.ErrInvalidValue, fmt.Sprintf("inside the registration at %v", r.base)
	}
	return gpu.Success, ""
}

// unlockPages unlocks the pages of a registration, except those that it shares
// with another one: the kernel does not count how often a page was locked. Call
// with Driver.mu held.
func (d *Driver) unlockPages(r *region) {
	if d.cfg.Backing != Mapped || r.flags&gpu.RegisterIOMemory != 0 {
		return
	}
	first := r.base &^ (hostPage - 1)
	last := (r.end() - 1) &^ (hostPage - 1)
	for first <= last && d.shared(r, first) {
		first += hostPage
	}
	for first <= last && d.shared(r, last) {
		last -= hostPage
	}
	if first <= last {
		// The user may have unmapped the memory already: nothing is locked then.
		_ = unix.Munlock(gpu.HostBytes(first, uint64(last-first)+hostPage))
	}
}

// shared reports whether the page also holds bytes of another region.
func (d *Driver) shared(r *region, page gpu.Addr) bool {
	if page < r.base && d.regions.Overlap(page, uint64(r.base-page)) != nil {
		return true
	}
	end := page + hostPage
	return end > r.end() && d.regions.Overlap(r.end(), uint64(end-r.end())) != nil
}
