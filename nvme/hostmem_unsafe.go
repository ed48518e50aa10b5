//go:build !race

package nvme

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// allocPages allocates n zeroed bytes of host memory for DMA, aligned to
// hostAlign, outside of Go's heap. Child processes do not inherit it: after a
// copy on write the device could use the wrong copy.
func allocPages(n int) (b []byte, free func() error, err error) {
	fail := func(op string, err error) error {
		return fmt.Errorf("allocate %d bytes of host memory: %w", n, os.NewSyscallError(op, err))
	}
	room := uintptr(n) + hostAlign - pageSize
	p, err := unix.MmapPtr(-1, 0, nil, room, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, nil, fail("mmap", err)
	}
	// Unmap the unaligned head and tail.
	head := -uintptr(p) & (hostAlign - 1)
	at := unsafe.Add(p, head)
	if head > 0 {
		err = unix.MunmapPtr(p, head)
	}
	if tail := room - head - uintptr(n); tail > 0 && err == nil {
		err = unix.MunmapPtr(unsafe.Add(at, n), tail)
	}
	if err != nil {
		return nil, nil, fail("munmap", err)
	}
	free = func() error { return os.NewSyscallError("munmap", unix.MunmapPtr(at, uintptr(n))) }
	b = unsafe.Slice((*byte)(at), n)
	if err := unix.Madvise(b, unix.MADV_DONTFORK); err != nil {
		_ = free() // the first error is the one to report
		return nil, nil, fail("madvise", err)
	}
	return b, free, nil
}
