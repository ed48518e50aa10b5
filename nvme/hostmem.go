//go:build !race && linux

package nvme

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// allocPages is n bytes of host memory for DMA, all zero. It is not the garbage
// collector's, and children of the process do not get it: a copy on write would
// leave the device with the wrong one.
func allocPages(n int) (b []byte, free func() error, err error) {
	b, err = unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_POPULATE)
	if err != nil {
		return nil, nil, fmt.Errorf("%d bytes of host memory: %w", n, os.NewSyscallError("mmap", err))
	}
	if err := unix.Madvise(b, unix.MADV_DONTFORK); err != nil {
		_ = unix.Munmap(b) // the first error is the one to report
		return nil, nil, os.NewSyscallError("madvise", err)
	}
	return b, func() error { return os.NewSyscallError("munmap", unix.Munmap(b)) }, nil
}
