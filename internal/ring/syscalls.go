package ring

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/storage"
)

// syscalls are what the ring needs of the operating system. Tests replace them to
// inject failures.
type syscalls interface {
	Pread(fd int, p []byte, off int64) (int, error)
	Pwrite(fd int, p []byte, off int64) (int, error)
	// Reserve reserves space for a write of [off, off+n) without changing the
	// file's size. No space is an error; a file system that cannot tell is not.
	Reserve(fd int, off, n int64) error
	// CanStore reports whether so many threads may store into a mapping of the
	// range instead of writing it.
	CanStore(fd int, off, n int64, workers int) bool
	Map(fd int, off, n int64) ([]byte, error)
	Unmap(mem []byte) error
	// Store copies into a mapping, and says how much processor time that took.
	Store(dst, src []byte) (time.Duration, error)
	// CopyMapped reads a range of a file, all of it, from a mapping. errNotMapped means
	// that this file is not to be read so.
	CopyMapped(s *storage.Stream, p []byte, off int64) error
	// Residency says what the page cache has of a range.
	Residency(fd int, off, n int64) (storage.Residency, error)
	// Fetch reads a range into the page cache, in large folios, and waits for it. An
	// error means that this is not possible.
	Fetch(fd int, off, n int64) error
	// WillNeed asks the kernel to read a range into the page cache, and does not wait.
	WillNeed(fd int, off, n int64) error
}

// kernel is the real one.
type kernel struct{}

func (kernel) Pread(fd int, p []byte, off int64) (int, error)  { return unix.Pread(fd, p, off) }
func (kernel) Pwrite(fd int, p []byte, off int64) (int, error) { return unix.Pwrite(fd, p, off) }
func (kernel) Unmap(mem []byte) error                          { return unix.Munmap(mem) }

func (kernel) Map(fd int, off, n int64) ([]byte, error) {
	return unix.Mmap(fd, off, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

func (kernel) Residency(fd int, off, n int64) (storage.Residency, error) {
	return storage.PageCache(fd, off, n)
}

func (kernel) Fetch(fd int, off, n int64) error { return storage.Fetch(fd, off, n) }

func (kernel) WillNeed(fd int, off, n int64) error {
	return unix.Fadvise(fd, off, n, unix.FADV_WILLNEED)
}

func (kernel) Reserve(fd int, off, n int64) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	from, end := max(off, st.Size), off+n
	var on unix.Statfs_t
	if st.Mode&unix.S_IFMT != unix.S_IFREG || from >= end || unix.Fstatfs(fd, &on) != nil || inMemory(&on) {
		return nil
	}
	if !fits(&st, &on, end-from) {
		return unix.ENOSPC
	}
	err := unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, from, end-from)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EFBIG) {
		return err
	}
	return nil
}

// inMemory reports a file system whose fallocate allocates the pages one by one: the
// writers do that faster, concurrently.
func inMemory(on *unix.Statfs_t) bool {
	return on.Type == unix.TMPFS_MAGIC || on.Type == unix.RAMFS_MAGIC
}

// fits reports whether a file can grow by n bytes, as far as that is known. ext4 is
// asked first, because its fallocate takes all space of the disk before it finds that
// this is not enough, and keeps it; overlayfs may be on ext4. What the file has
// reserved already needs no space.
func fits(st *unix.Stat_t, on *unix.Statfs_t, n int64) bool {
	if on.Type != unix.EXT4_SUPER_MAGIC && on.Type != unix.OVERLAYFS_SUPER_MAGIC {
		return true
	}
	reserved := st.Blocks * 512
	if reserved >= st.Size { // otherwise it has holes, and the blocks may be anywhere
		reserved -= st.Size
	}
	return max(n-reserved, 0)/max(on.Bsize, 1) <= int64(on.Bfree)
}
