package storage

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// A File has descriptors of its own for a caller's file: a duplicate, so that closing
// and reusing the caller's number cannot redirect I/O, and a second one with O_DIRECT
// the other way, if the kernel allows it.
type File struct {
	Name  string // as /proc/self/fd names it
	Facts Facts

	flags    int // as opened by the caller
	own      int // our duplicate
	buffered int // without O_DIRECT, or -1
	direct   int // with O_DIRECT, or -1
	reads    Stream
	mapping  fileMapping

	mu      sync.Mutex
	closed  bool
	onClose []func()
}

// ErrFileType rejects a descriptor that is neither a regular file nor a block device.
var ErrFileType = errors.New("not a regular file or block device")

// Adopt returns a File for the descriptor fd, which remains the caller's.
func Adopt(fd int) (*File, error) {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return nil, fmt.Errorf("descriptor %d: %w", fd, err)
	}
	if flags&unix.O_PATH != 0 {
		return nil, fmt.Errorf("descriptor %d: opened with O_PATH: %w", fd, unix.EBADF)
	}
	own, err := duplicate(fd)
	if err != nil {
		return nil, fmt.Errorf("descriptor %d: duplicate: %w", fd, err)
	}
	f := &File{flags: flags, own: own, buffered: -1, direct: -1}
	f.Name, err = os.Readlink(procFD(own))
	if err != nil {
		f.Name = "descriptor " + strconv.Itoa(fd)
	}
	if f.Facts, err = factsOf(own); err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", f.Name, err)
	}
	f.openBoth()
	if f.Facts.Block {
		if f.Facts.Capacity, err = f.Size(); err != nil {
			f.Close()
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	f.reads.init(!f.CallerDirect(), f.direct >= 0, f.length, f.Facts.Dev)
	f.reads.mapped, f.reads.pass = f.mapped, openPass(f.id())
	f.reads.uncached = f.uncached()
	return f, nil
}

// uncached reports a file of which the kernel caches nothing for read(2): the server of a
// user-space file system chose so at open (FOPEN_DIRECT_IO). Such a file cannot be mapped.
// Pages that readahead leaves in the cache all the same are not what read returns.
func (f *File) uncached() bool {
	if f.buffered < 0 || f.Facts.FS != "fuse" {
		return false
	}
	page, err := unix.Mmap(f.buffered, 0, int(pageSize), unix.PROT_READ, unix.MAP_SHARED)
	if err == nil {
		_ = unix.Munmap(page)
	}
	return errors.Is(err, unix.ENODEV)
}

func (f *File) id() fileID { return fileID{f.Facts.Dev, f.Facts.Inode} }

// openBoth sets the buffered and the direct descriptor. One that cannot be opened
// (only root may reopen the file, or the file system has no O_DIRECT) is -1; routes
// that need it report that.
func (f *File) openBoth() {
	again := f.flags & (unix.O_ACCMODE | unix.O_SYNC | unix.O_DSYNC | unix.O_NOATIME)
	again |= unix.O_CLOEXEC
	if f.flags&unix.O_DIRECT == 0 {
		f.buffered = f.own
		if f.Facts.Direct.Supported {
			f.direct = reopen(f.own, again|unix.O_DIRECT)
		}
		return
	}
	f.direct = f.own
	f.buffered = reopen(f.own, again)
}

func reopen(fd, flags int) int {
	again, err := unix.Open(procFD(fd), flags, 0)
	if err == nil && again < afterStandard {
		low := again
		again, err = duplicate(low)
		unix.Close(low)
	}
	if err != nil {
		return -1
	}
	return again
}

// afterStandard is the first descriptor after standard error. A program may have
// closed its standard output; what it prints must not go into one of our files.
const afterStandard = 3

func duplicate(fd int) (int, error) {
	return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, afterStandard)
}

func procFD(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// FD is the descriptor with the caller's own flags.
func (f *File) FD() int { return f.own }

// Buffered is a descriptor that goes through the page cache, or -1.
func (f *File) Buffered() int { return f.buffered }

// Direct is a descriptor with O_DIRECT, or -1.
func (f *File) Direct() int { return f.direct }

// CallerDirect reports whether the caller opened the file with O_DIRECT. Writes must
// follow that; reads need not.
func (f *File) CallerDirect() bool { return f.flags&unix.O_DIRECT != 0 }

// ForceDirect treats the file as opened with O_DIRECT, if it can be. Call it before the
// file is used.
func (f *File) ForceDirect() {
	if f.direct >= 0 {
		f.flags |= unix.O_DIRECT
	}
}

// Reads is how the file is read, as far as the page cache is concerned.
func (f *File) Reads() *Stream { return &f.reads }

// StartReading asks the kernel for the first bytes of a range that is about to be
// read, if the policy wants them in the page cache, and does not wait.
func (f *File) StartReading(off, n int64) {
	if f.buffered < 0 {
		return
	}
	n = min(n, aheadStep)
	r, err := PageCache(f.buffered, off, n)
	if path, _ := f.reads.Path(off, n, r, err == nil); path != Fill {
		return
	}
	missing := func(from, to int64) int64 {
		r, err := PageCache(f.buffered, from, to-from)
		if err != nil {
			return -1
		}
		return (r.Pages - r.Cached) * pageSize
	}
	from, to := f.reads.Ahead(off, n, Range{off, off + n}, true, missing)
	f.reads.Ask(from, to, nil, func(off, n int64) error { return unix.Fadvise(f.buffered, off, n, unix.FADV_WILLNEED) })
}

// Readable reports whether the file was opened for reading.
func (f *File) Readable() bool { return f.flags&unix.O_ACCMODE != unix.O_WRONLY }

// Writable reports whether the file was opened for writing.
func (f *File) Writable() bool { return f.flags&unix.O_ACCMODE != unix.O_RDONLY }

// Flags are the caller's open flags.
func (f *File) Flags() int { return f.flags }

// fDupFDQuery asks whether two descriptors share one open file (Linux 6.10).
const fDupFDQuery = 1024 + 3

// Same reports whether two files were adopted from descriptors of one open file: one
// open(2), perhaps duplicated. If the kernel cannot tell, it reports whether they are
// the same file.
func (f *File) Same(g *File) bool {
	if same, err := unix.FcntlInt(uintptr(f.own), fDupFDQuery, g.own); err == nil {
		return same == 1
	}
	const kcmpFile = 0
	pid := uintptr(os.Getpid())
	if r, _, errno := unix.Syscall6(unix.SYS_KCMP, pid, pid, kcmpFile, uintptr(f.own), uintptr(g.own), 0); errno == 0 {
		return r == 0
	}
	return f.Facts.Dev == g.Facts.Dev && f.Facts.Inode == g.Facts.Inode
}

// Size is the file's size now, or the device's.
func (f *File) Size() (int64, error) {
	if f.Facts.Block {
		n, err := unix.Seek(f.seekable(), 0, unix.SEEK_END)
		return n, os.NewSyscallError("lseek", err)
	}
	var st unix.Stat_t
	err := unix.Fstat(f.own, &st)
	return st.Size, os.NewSyscallError("fstat", err)
}

// seekable is a descriptor with a position of its own. The duplicate shares that of the
// caller, who may use it for read(2); it is taken only if there is no other.
func (f *File) seekable() int {
	for _, fd := range []int{f.direct, f.buffered} {
		if fd >= 0 && fd != f.own {
			return fd
		}
	}
	return f.own
}

// length is Size, for streams: a device's does not change.
func (f *File) length() (int64, error) {
	if f.Facts.Block {
		return f.Facts.Capacity, nil
	}
	return f.Size()
}

// OnClose makes Close call fn before it closes the descriptors, so that a route can
// free what it keeps per file.
func (f *File) OnClose(fn func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.onClose = append(f.onClose, fn)
}

// Close closes the descriptors, but not the caller's.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return os.ErrClosed
	}
	f.closed = true
	for _, fn := range f.onClose {
		fn()
	}
	f.reads.Wait()
	closePass(f.id(), f.reads.pass)
	f.mapping.close()
	for _, fd := range []int{f.buffered, f.direct} {
		if fd >= 0 && fd != f.own {
			unix.Close(fd)
		}
	}
	return os.NewSyscallError("close", unix.Close(f.own))
}
