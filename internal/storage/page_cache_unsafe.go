package storage

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Residency says how much of a range of a file the page cache contains.
type Residency struct {
	Pages  int64 // of the range, including those that it covers in part
	Cached int64
	// Dirty reports pages that must be written out before O_DIRECT can read the
	// range. It is false if only mincore could answer.
	Dirty bool
}

var pageSize = int64(os.Getpagesize())

// PageCache reports what the page cache contains of [off, off+n) of a file. The error
// is EPERM for a file that the process may not write: the kernel does not tell
// then. A caller treats such a range as cached, because a buffered read is always
// correct.
//
// It asks cachestat(2). Where that has no answer it asks mincore(2) about a mapping
// of the range, which costs some microseconds more.
func PageCache(fd int, off, n int64) (Residency, error) {
	if n <= 0 {
		return Residency{}, nil
	}
	first, last := off/pageSize, (off+n-1)/pageSize
	r := unix.CachestatRange{Off: uint64(off), Len: uint64(n)}
	var cs unix.Cachestat_t
	err := unix.Cachestat(uint(fd), &r, &cs, 0)
	if noCachestat(fd, cs.Cache, err) {
		cached, err := mincorePages(fd, first, last-first+1)
		return Residency{Pages: last - first + 1, Cached: cached}, err
	}
	return Residency{last - first + 1, int64(cs.Cache), cs.Dirty > 0 || cs.Writeback > 0}, err
}

// noCachestat reports an answer of cachestat that says nothing about the file: the
// kernel is older than Linux 6.5, a seccomp filter forbids the call, or the file is
// on overlayfs, where the pages belong to the file below.
func noCachestat(fd int, cached uint64, err error) bool {
	switch {
	case err == nil:
		var on unix.Statfs_t
		return cached == 0 && unix.Fstatfs(fd, &on) == nil && on.Type == unix.OVERLAYFS_SUPER_MAGIC
	case errors.Is(err, unix.EPERM):
		return cachestatForbidden()
	}
	return errors.Is(err, unix.ENOSYS)
}

// cachestatForbidden asks about a file that the process owns: EPERM then comes from
// a seccomp filter and not from the file's permissions.
var cachestatForbidden = sync.OnceValue(func() bool {
	fd, err := unix.MemfdCreate("cachestat", unix.MFD_CLOEXEC)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var cs unix.Cachestat_t
	return errors.Is(unix.Cachestat(uint(fd), &unix.CachestatRange{}, &cs, 0), unix.EPERM)
})

// mincorePages counts the cached ones of n pages of a file.
func mincorePages(fd int, first, n int64) (cached int64, err error) {
	mem, err := unix.Mmap(fd, first*pageSize, int(n*pageSize), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return 0, os.NewSyscallError("mmap", err)
	}
	defer unix.Munmap(mem)
	var marks [1024]byte
	for at := int64(0); at < n; at += int64(len(marks)) {
		some := marks[:min(int64(len(marks)), n-at)]
		if err := Mincore(mem[at*pageSize:(at+int64(len(some)))*pageSize], some); err != nil {
			return 0, err
		}
		for _, m := range some {
			cached += int64(m & 1)
		}
	}
	return cached, nil
}

// Mincore sets bit 0 of a mark for each page of a file mapping that the page cache
// contains with valid data. A page whose read failed is in the cache without.
// mem begins on a page, and there is a mark for each page of it.
func Mincore(mem, marks []byte) error {
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(unsafe.SliceData(mem))), uintptr(len(mem)), uintptr(unsafe.Pointer(unsafe.SliceData(marks))))
	if errno != 0 {
		return os.NewSyscallError("mincore", errno)
	}
	return nil
}

// Resident returns how many bytes of [off, off+n) the page cache contains: see
// [PageCache].
func (f *File) Resident(off, n int64) (int64, error) {
	if f.buffered < 0 {
		return 0, os.ErrInvalid
	}
	r, err := PageCache(f.buffered, off, n)
	if err != nil {
		return 0, fmt.Errorf("%s: page cache: %w", f.Name, err)
	}
	return min(r.Cached*pageSize, n), nil
}

// DropCache asks the kernel to drop the file's cached pages. Dirty pages are written
// first. Pages that are mapped or being written stay, so a caller that needs a cold
// file must check with Resident.
func (f *File) DropCache() error {
	if f.buffered < 0 {
		return nil
	}
	// A file that we only read may have been written by others.
	if err := unix.Fdatasync(f.buffered); err != nil && f.Writable() {
		return os.NewSyscallError("fdatasync", err)
	}
	// Pages whose readahead is still in flight are not dropped at the first try.
	const tries, pause = 5, 2 * time.Millisecond
	for try := range tries {
		if err := unix.Fadvise(f.buffered, 0, 0, unix.FADV_DONTNEED); err != nil {
			return os.NewSyscallError("fadvise", err)
		}
		size, err := f.length()
		if err != nil {
			return err
		}
		if n, err := f.Resident(0, size); n == 0 || err != nil || try == tries-1 {
			break
		}
		time.Sleep(pause)
	}
	return nil
}
