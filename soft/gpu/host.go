package gpu

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
)

// hostPage is the alignment of pinned and managed memory.
const hostPage = 4096

// allocHost makes pinned or managed memory. Both are host memory that every
// GPU may use; managed memory is not locked.
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
		d.lock.own(b)
	}
	return hostBlock(b, false, func() {
		if err := unix.Munmap(b); err != nil {
			panic(fmt.Sprintf("munmap of pinned memory at %v: %v", gpu.HostAddr(b), err)) // our own mapping: cannot fail
		}
	}), nil
}

// DevicePointer is the address under which the GPU sees pinned or registered
// host memory: the same one.
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
