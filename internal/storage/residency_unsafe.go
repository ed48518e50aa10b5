package storage

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sysCachestat is cachestat(2), Linux 6.5. The number is the same on all
// architectures.
const sysCachestat = 451

type cachestatRange struct{ off, length uint64 }

type cachestat struct{ cache, dirty, writeback, evicted, recentlyEvicted uint64 }

// Resident is how many bytes of [off, off+n) the page cache holds, by
// cachestat(2); where the kernel lacks it the error is ENOSYS, and a caller
// should then treat the range as warm: a buffered read is never wrong. So it is
// on overlayfs, where the kernel does not look for the pages at the file below.
func (f *File) Resident(off, n int64) (int64, error) {
	if f.buffered < 0 {
		return 0, os.ErrInvalid
	}
	r := cachestatRange{uint64(off), uint64(n)}
	var cs cachestat
	_, _, errno := unix.Syscall6(sysCachestat, uintptr(f.buffered), uintptr(unsafe.Pointer(&r)), uintptr(unsafe.Pointer(&cs)), 0, 0, 0)
	if errno == 0 && cs.cache == 0 && f.Facts.FS == "overlay" {
		errno = unix.ENOSYS
	}
	if errno != 0 {
		return 0, os.NewSyscallError("cachestat", errno)
	}
	return min(int64(cs.cache)*int64(os.Getpagesize()), n), nil
}

// DropCache asks the kernel to forget the cached pages of the file. Dirty pages
// are written first; pages that are mapped or being written stay, so a caller
// who needs a cold file checks with Resident.
func (f *File) DropCache() error {
	if f.buffered < 0 {
		return nil
	}
	// A file that we only read may have been written by others.
	if err := unix.Fdatasync(f.buffered); err != nil && f.Writable() {
		return os.NewSyscallError("fdatasync", err)
	}
	return os.NewSyscallError("fadvise", unix.Fadvise(f.buffered, 0, 0, unix.FADV_DONTNEED))
}
