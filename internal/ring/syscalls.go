package ring

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/storage"
)

// files is what the ring asks of the operating system, so that tests can put
// failures in the middle of it.
type syscalls interface {
	Pread(fd int, p []byte, off int64) (int, error)
	Pwrite(fd int, p []byte, off int64) (int, error)
	Fdatasync(fd int) error
	// Reserve finds room for a write of [off, off+n) without changing the
	// file's size. That there is no room is an error; that the file system
	// cannot say is none.
	Reserve(fd int, off, n int64) error
	// Overwritable reports whether storing into the pages of the range, by so many
	// hands, is the better way to write it.
	CanStore(fd int, off, n int64, hands int) bool
	Map(fd int, off, n int64) (mappedPages, error)
	Unmap(mappedPages) error
	Store(dst, src []byte) error
	// Warm reports whether a buffered read of the range is the better one.
	Warm(fd int, off, n int64) bool
}

// kernel is the real one.
type kernel struct{}

func (kernel) Pread(fd int, p []byte, off int64) (int, error)  { return unix.Pread(fd, p, off) }
func (kernel) Pwrite(fd int, p []byte, off int64) (int, error) { return unix.Pwrite(fd, p, off) }
func (kernel) Fdatasync(fd int) error                          { return unix.Fdatasync(fd) }

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

// inMemory reports a file system whose fallocate takes the pages one by one:
// there the writers do that better, side by side.
func inMemory(on *unix.Statfs_t) bool {
	return on.Type == unix.TMPFS_MAGIC || on.Type == unix.RAMFS_MAGIC
}

// fits reports whether a file can have n bytes more behind its end, as far as one
// can tell. ext4 is asked first because it takes all that the disk has before it
// finds out that this is not enough, and leaves it taken; overlayfs may stand on
// it. What the file has reserved already needs no room.
func fits(st *unix.Stat_t, on *unix.Statfs_t, n int64) bool {
	if on.Type != unix.EXT4_SUPER_MAGIC && on.Type != unix.OVERLAYFS_SUPER_MAGIC {
		return true
	}
	reserved := st.Blocks * 512
	if reserved >= st.Size { // else it has holes, and nobody knows where the blocks are
		reserved -= st.Size
	}
	return max(n-reserved, 0)/max(on.Bsize, 1) <= int64(on.Bfree)
}

func (kernel) Warm(fd int, off, n int64) bool {
	r, err := storage.PageCache(fd, off, n)
	// If the kernel does not tell, a buffered read is always correct.
	return err != nil || r.Dirty || 2*r.Cached >= r.Pages
}
