package gpu

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	abi "github.com/culvert-io/culvert/internal/abi/cuda"
)

// hostPage is the alignment of pinned and managed memory.
const hostPage = 4096

// allocHost allocates pinned or managed memory. Both are host memory that every GPU may
// use; managed memory is not locked.
func (x *Device) allocHost(op string, r *region) (gpu.Addr, error) {
	d := x.ctx.drv
	b, err := d.mapHost(r.size, r.kind == gpu.KindHost)
	if err != nil {
		return 0, gpu.Fail(op, gpu.ErrOutOfMemory, err.Error())
	}
	r.base, r.blk = gpu.HostAddr(b.runs[0].bytes), b
	b.live++
	d.mu.Lock()
	defer d.mu.Unlock()
	d.regions.Insert(r.base, r.size, r)
	return r.base, nil
}

func (d *Driver) mapHost(n uint64, pinned bool) (*block, error) {
	if d.cfg.Backing == Heap {
		room := make([]byte, n+hostPage)
		off := uint64(-gpu.HostAddr(room)) % hostPage
		return hostBlock(room[off:off+n:off+n], false, func() {}), nil
	}
	b, err := unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	if pinned {
		_ = unix.Mlock(b) // it works unlocked, too, above RLIMIT_MEMLOCK
	}
	return hostBlock(b, false, func() {
		if err := unix.Munmap(b); err != nil {
			panic(fmt.Sprintf("munmap of pinned memory at %v: %v", gpu.HostAddr(b), err)) // our own mapping: cannot fail
		}
	}), nil
}

// DevicePointer returns the address at which the GPU sees pinned or registered host
// memory: the same one.
func (x *Device) DevicePointer(host uintptr) (gpu.Addr, error) {
	op := "cuMemHostGetDevicePointer"
	if err := x.check(op); err != nil {
		return 0, err
	}
	x.ctx.drv.mu.Lock()
	defer x.ctx.drv.mu.Unlock()
	r := x.ctx.drv.regions.Find(gpu.Addr(host))
	if r == nil || r.kind != gpu.KindHost && r.kind != gpu.KindRegistered {
		return 0, gpu.Fail(fmt.Sprintf("%s(%#x)", op, host), gpu.ErrInvalidValue, "not pinned or registered host memory")
	}
	return gpu.Addr(host), nil
}

const registerFlags = gpu.RegisterPortable | gpu.RegisterDeviceMap | gpu.RegisterIOMemory | gpu.RegisterReadOnly

// Register pins n bytes of host memory. It refuses what the kernel would refuse to pin
// for a GPU (see pinnable).
func (x *Device) Register(host uintptr, n uint64, f gpu.Flags) error {
	op := fmt.Sprintf("cuMemHostRegister(%#x, %d, %#x)", host, n, uint32(f))
	if err := x.check(op); err != nil {
		return err
	}
	a, g, d := gpu.Addr(host), x.ctx.card, x.ctx.drv
	switch {
	case host == 0 || n == 0:
		return gpu.Fail(op, gpu.ErrInvalidValue, "address and size must not be 0")
	case host >= userEnd || n > userEnd-uint64(host):
		return gpu.Fail(op, gpu.ErrNotSupported, "the range exceeds the addresses of a process")
	case f&^registerFlags != 0:
		return gpu.Fail(op, gpu.ErrInvalidValue, "unknown flags")
	case !g.has(abi.AttrHostRegister):
		return gpu.Fail(op, gpu.ErrNotSupported, g.model.Name+" has no HOST_REGISTER_SUPPORTED")
	case f&gpu.RegisterReadOnly != 0 && !g.has(abi.AttrReadOnlyHostRegister):
		return gpu.Fail(op, gpu.ErrNotSupported, g.model.Name+" has no READ_ONLY_HOST_REGISTER_SUPPORTED")
	}
	pinErr := pinnable(host, n, f) // without the lock: it reads /proc/self/maps
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.registrable(a, n); err != nil {
		return fail(op, err)
	}
	if pinErr != nil {
		return fail(op, pinErr)
	}
	b := gpu.HostBytes(a, n)
	r := &region{kind: gpu.KindRegistered, base: a, size: n, flags: f, dev: x, blk: hostBlock(b, true, func() {})}
	r.blk.live++
	d.regions.Insert(a, n, r)
	if d.locks(r) {
		_ = mlockOnFault(b) // it works unlocked, too, above RLIMIT_MEMLOCK
	}
	return nil
}

func (d *Driver) registrable(a gpu.Addr, n uint64) error {
	if d.deviceAddrs(a, n) {
		return refuse(gpu.ErrInvalidValue, "device addresses")
	}
	if r := d.regions.Overlap(a, n); r != nil {
		code := gpu.ErrInvalidValue
		if r.kind == gpu.KindRegistered {
			code = gpu.ErrHostMemoryAlreadyRegistered
		}
		return refuse(code, "%v memory, %d bytes at %v", r.kind, r.size, r.base)
	}
	return nil
}

// Unregister takes the address that was registered.
func (x *Device) Unregister(host uintptr) error {
	a := gpu.Addr(host)
	return x.remove(fmt.Sprintf("cuMemHostUnregister(%#x)", host), a, func(r *region) error {
		switch {
		case a == 0:
			return refuse(gpu.ErrInvalidValue, "")
		case r == nil:
			return refuse(gpu.ErrHostMemoryNotRegistered, "")
		case r.kind != gpu.KindRegistered:
			return refuse(gpu.ErrInvalidValue, "this is %v memory", r.kind)
		case r.base != a:
			return refuse(gpu.ErrInvalidValue, "inside the registration at %v", r.base)
		}
		return nil
	})
}

// locks reports whether the pages of a registration are locked.
func (d *Driver) locks(r *region) bool {
	return d.cfg.Backing == Mapped && r.flags&gpu.RegisterIOMemory == 0
}

// unlockPages unlocks the pages of a registration, except those that it shares with
// another region: the kernel does not count locks of a page. Call with Driver.mu held.
func (d *Driver) unlockPages(r *region) {
	first := r.base &^ (hostPage - 1)
	last := (r.end() - 1) &^ (hostPage - 1)
	for first <= last && d.shared(r, first) {
		first += hostPage
	}
	for first <= last && d.shared(r, last) {
		last -= hostPage
	}
	if first <= last && d.locks(r) {
		// The user may have unmapped the memory already: nothing is locked then.
		_ = unix.Munlock(gpu.HostBytes(first, uint64(last-first)+hostPage))
	}
}

// shared reports whether the page has bytes of another region, before or after r.
func (d *Driver) shared(r *region, page gpu.Addr) bool {
	if page < r.base && d.regions.Overlap(page, uint64(r.base-page)) != nil {
		return true
	}
	end := page + hostPage
	return end > r.end() && d.regions.Overlap(r.end(), uint64(end-r.end())) != nil
}
