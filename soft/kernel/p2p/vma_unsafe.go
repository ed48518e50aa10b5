package p2p

import (
	"slices"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	softgpu "github.com/culvert-io/culvert/soft/gpu"
)

// A VMA is pinned GPU memory in the process's address space. It is a
// kernel.Mapping.
type VMA struct {
	addr   unsafe.Pointer
	n      uintptr
	void   int
	pin    *pin
	mu     sync.Mutex
	gone   bool
	zapped bool
}

// Addr is the address of the first byte.
func (v *VMA) Addr() uintptr { return uintptr(v.addr) }

// Len is the number of bytes.
func (v *VMA) Len() int { return int(v.n) }

const noAccess = unix.MAP_PRIVATE | unix.MAP_ANONYMOUS | unix.MAP_NORESERVE

// Mmap maps n bytes from off of a pin's pages, both multiples of the system's
// page size, into the process. When the pin ends the mapping is zapped: it
// stays in place, and an access raises SIGBUS, as on hardware.
func (rm *RM) Mmap(t *PageTable, off, n uint64, prot int) (*VMA, error) {
	if t == nil || t.pin == nil || t.pin.rm != rm {
		return nil, syscall.EINVAL
	}
	p := t.pin
	page := uint64(syscall.Getpagesize())
	if size := uint64(len(t.Pages)) * PageSize; n == 0 || off%page != 0 || n%page != 0 || off > size || n > size-off {
		return nil, syscall.EINVAL
	}
	if p.card.gpu.Arena() == nil {
		return nil, syscall.ENODEV // frames on the heap cannot be mapped a second time
	}
	rm.mu.Lock()
	defer rm.mu.Unlock()
	if p.state != live {
		return nil, syscall.EINVAL
	}
	addr, err := unix.MmapPtr(-1, 0, nil, uintptr(n), unix.PROT_NONE, noAccess)
	if err != nil {
		return nil, syscall.ENOMEM
	}
	v := &VMA{addr: addr, n: uintptr(n), void: int(rm.void.Fd()), pin: p}
	if err := v.fill(off, prot); err != nil {
		_ = unix.MunmapPtr(v.addr, v.n) // the first error is the one to report
		return nil, syscall.EAGAIN
	}
	p.vmas = append(p.vmas, v)
	return v, nil
}

// fill maps the frames, runs of neighbours together.
func (v *VMA) fill(off uint64, prot int) error {
	arena := int(v.pin.card.gpu.Arena().Fd())
	frames, _, _ := v.pin.access.Frames()
	frames = frames[off/PageSize:]
	off %= PageSize
	for done := uintptr(0); done < v.n; {
		run := 1
		for run < len(frames) && frames[run] == frames[run-1]+1 {
			run++
		}
		size := min(uintptr(run)*PageSize-uintptr(off), v.n-done)
		_, err := unix.MmapPtr(arena, int64(frames[0]*softgpu.FrameSize+off), unsafe.Add(v.addr, done), size,
			prot, unix.MAP_SHARED|unix.MAP_FIXED)
		if err != nil {
			return err
		}
		done += size
		frames, off = frames[run:], 0
	}
	return nil
}

// zap puts nothing in the place of the memory: a file without bytes, which
// answers an access with SIGBUS. Where even that fails the addresses lose their
// access; the frames must be let go in any case.
func (v *VMA) zap() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.gone || v.zapped {
		return
	}
	v.zapped = true
	_, err := unix.MmapPtr(v.void, 0, v.addr, v.n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED)
	if err != nil {
		_ = unix.Mprotect(unsafe.Slice((*byte)(v.addr), v.n), unix.PROT_NONE)
	}
}

// Zap takes the memory out of the mapping before its pin ends.
func (v *VMA) Zap() {
	v.zap()
	v.forget()
}

// forget tells the pin that it need not care any more. It comes when the
// memory is out of the mapping, not before.
func (v *VMA) forget() {
	rm := v.pin.rm
	rm.mu.Lock()
	defer rm.mu.Unlock()
	v.pin.vmas = slices.DeleteFunc(v.pin.vmas, func(x *VMA) bool { return x == v })
}

// Unmap gives the addresses back. A second call does nothing.
func (v *VMA) Unmap() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.gone {
		return nil
	}
	if err := unix.MunmapPtr(v.addr, v.n); err != nil {
		return err
	}
	v.gone = true
	v.forget()
	return nil
}
