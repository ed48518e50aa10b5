package ladder

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// preadCached is pread of what is in the page cache: it never waits for a drive, so the
// scheduler need not know of the call. It is made here because unix.Preadv2 allocates.
func preadCached(fd int, b []byte, off int64) int {
	iov := unix.Iovec{Base: unsafe.SliceData(b), Len: uint64(len(b))}
	n, _, errno := unix.RawSyscall6(unix.SYS_PREADV2, uintptr(fd), uintptr(unsafe.Pointer(&iov)), 1, uintptr(off), 0, unix.RWF_NOWAIT)
	if errno != 0 {
		return -1
	}
	return int(n)
}
