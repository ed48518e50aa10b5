package nvrm

import (
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	softgpu "github.com/culvert-io/culvert/soft/gpu"
)

// A vma is GPU memory in the process's address space.
type vma struct {
	addr unsafe.Pointer
	n    uintptr

	mu   sync.Mutex
	gone bool
}

func (v *vma) Addr() uintptr { return uintptr(v.addr) }
func (v *vma) Len() int      { return int(v.n) }

const reserved = unix.MAP_PRIVATE | unix.MAP_ANONYMOUS | unix.MAP_NORESERVE

// newVMA maps what was lent. Where its frames are not neighbours it is made of
// pieces.
func newVMA(access *softgpu.Access, n uint64, prot int) (*vma, error) {
	addr, err := unix.MmapPtr(-1, 0, nil, uintptr(n), unix.PROT_NONE, reserved)
	if err != nil {
		return nil, syscall.ENOMEM
	}
	v := &vma{addr: addr, n: uintptr(n)}
	if err := v.fill(access, prot); err != nil {
		_ = v.Unmap()              // the first error is the one to report
		return nil, syscall.EAGAIN // as the driver when the kernel runs out of something
	}
	return v, nil
}

func (v *vma) fill(access *softgpu.Access, prot int) error {
	arena := int(access.GPU().Arena().Fd())
	frames, _, off := access.Frames()
	for done := uintptr(0); done < v.n; {
		run := 1
		for run < len(frames) && frames[run] == frames[run-1]+1 {
			run++
		}
		size := min(uintptr(run)*softgpu.FrameSize-uintptr(off), v.n-done)
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

// revoke makes the addresses inaccessible. They stay taken until Unmap, so
// that nothing else can be found there.
func (v *vma) revoke() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.gone {
		return nil
	}
	_, err := unix.MmapPtr(-1, 0, v.addr, v.n, unix.PROT_NONE, reserved|unix.MAP_FIXED)
	return err
}

func (v *vma) live() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return !v.gone
}

func (v *vma) Unmap() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.gone {
		return nil
	}
	v.gone = true
	return unix.MunmapPtr(v.addr, v.n)
}
