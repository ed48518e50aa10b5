package gpu

import (
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/soft/internal/shared"
)

// A VMA is device memory in the process's address space.
type VMA struct {
	addr unsafe.Pointer
	n    uintptr

	mu   sync.Mutex
	gone bool
}

const noAccess = unix.MAP_PRIVATE | unix.MAP_ANONYMOUS | unix.MAP_NORESERVE

// Mappable reports whether the memory can be mapped: not on the heap, and not in peer
// devices.
func (g *GPU) Mappable() bool { return g.arena.mappable() }

// Mmap maps n bytes from off of the access, which must stay until Unmap or Revoke.
// It returns ENODEV if the memory is not [GPU.Mappable].
func (a *Access) Mmap(off, n uint64, prot int) (*VMA, error) {
	if !a.blk.card.Mappable() {
		return nil, syscall.ENODEV
	}
	addr, err := unix.MmapPtr(-1, 0, nil, uintptr(n), unix.PROT_NONE, noAccess)
	if err != nil {
		return nil, syscall.ENOMEM
	}
	v := &VMA{addr: addr, n: uintptr(n)}
	if err := v.fill(a, a.off+off, prot); err != nil {
		_ = v.Unmap() // the first error is reported
		return nil, syscall.EAGAIN
	}
	return v, nil
}

// fill maps the frames, adjacent ones together.
func (v *VMA) fill(a *Access, off uint64, prot int) error {
	arena := a.blk.card.arena
	frames := a.blk.frames[off/FrameSize:]
	off %= FrameSize
	for done := uintptr(0); done < v.n; {
		run := 1
		for run < len(frames) && frames[run] == frames[run-1]+1 {
			run++
		}
		size := min(uintptr(run)*FrameSize-uintptr(off), v.n-done)
		mem := arena.mapped[frames[0]*FrameSize+off:][:size]
		if err := shared.AgainAt(mem, unsafe.Add(v.addr, done), prot); err != nil {
			return err
		}
		done += size
		frames, off = frames[run:], 0
	}
	return nil
}

// Addr returns the address of the first byte.
func (v *VMA) Addr() uintptr { return uintptr(v.addr) }

// Len returns the number of bytes.
func (v *VMA) Len() int { return int(v.n) }

// Revoke takes the memory out of the mapping. The addresses stay reserved until Unmap.
// An access raises SIGSEGV, or SIGBUS if empty is the descriptor of an empty file and
// not -1.
func (v *VMA) Revoke(empty int) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.gone {
		return nil
	}
	if empty >= 0 {
		_, err := unix.MmapPtr(empty, 0, v.addr, v.n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED)
		if err == nil {
			return nil
		}
	}
	_, err := unix.MmapPtr(-1, 0, v.addr, v.n, unix.PROT_NONE, noAccess|unix.MAP_FIXED)
	return err
}

// Mapped reports whether Unmap was not called.
func (v *VMA) Mapped() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return !v.gone
}

// Unmap removes the mapping. A second call does nothing.
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
	return nil
}
