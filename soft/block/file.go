package block

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/soft/internal/freelist"
)

// A File is a drive whose bytes are in a file or on a block device. It is safe for
// concurrent use.
type File struct {
	name  string
	disk  bool // a block device: fstat does not return its size
	align align
	vecs  freelist.List[vector]

	mu     sync.RWMutex // held for reading while the descriptors are in use
	fd     int          // -1 when closed
	direct int          // the same file with O_DIRECT, or -1
}

// Adopt makes a drive from an open file, which the caller may then close. The drive
// opens the file again, so that it does not move the file's offset. A file opened
// read-only makes a read-only drive.
func Adopt(f *os.File) (*File, error) {
	b := &File{name: f.Name(), fd: -1, direct: -1}
	conn, err := f.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("drive from %s: %w", b.name, err)
	}
	if cerr := conn.Control(func(fd uintptr) { err = b.open(int(fd)) }); cerr != nil {
		err = cerr
	}
	if err != nil {
		return nil, fmt.Errorf("drive from %s: %w", b.name, errors.Join(err, b.close()))
	}
	return b, nil
}

// NewMemory makes a drive of n zero bytes in memory.
func NewMemory(n int64) (*File, error) {
	fd, err := unix.MemfdCreate("culvert-drive", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "memory")
	defer f.Close() // the drive has its own descriptor
	if err := f.Truncate(n); err != nil {
		return nil, err
	}
	return Adopt(f)
}

// open opens the file behind fd again.
func (b *File) open(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
	case unix.S_IFBLK:
		b.disk = true
	default:
		return errors.New("must be a regular file or a block device")
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return os.NewSyscallError("fcntl", err)
	}
	mode := flags & unix.O_ACCMODE
	if mode == unix.O_WRONLY {
		return errors.New("file is open for writing only (fix: open it for reading, too)")
	}
	// A duplicate would share the offset, and flags such as O_APPEND.
	path := fmt.Sprintf("/proc/self/fd/%d", fd)
	if b.fd, err = unix.Open(path, mode|unix.O_CLOEXEC, 0); err != nil {
		b.fd = -1
		return &fs.PathError{Op: "reopen", Path: path, Err: err}
	}
	if b.align = directAlign(b.fd); b.align.offset == 0 {
		return nil
	}
	if b.direct, err = unix.Open(path, mode|unix.O_DIRECT|unix.O_CLOEXEC, 0); err != nil {
		b.direct = -1 // not on this file system
	}
	return nil
}

// An align is the alignment of direct I/O: of addresses, and of offsets and lengths.
type align struct{ memory, offset uintptr }

// directAlign returns the alignment of a file, zero without direct I/O. Linux before
// 6.1 does not tell it; whole pages always work.
func directAlign(fd int) align {
	var st unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &st)
	if err != nil || st.Mask&unix.STATX_DIOALIGN == 0 {
		return align{4096, 4096}
	}
	return align{uintptr(st.Dio_mem_align), uintptr(st.Dio_offset_align)}
}

// use runs fn with open descriptors.
func (b *File) use(op string, fn func() error) error {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.fd < 0 {
		return &fs.PathError{Op: op, Path: b.name, Err: fs.ErrClosed}
	}
	if err := fn(); err != nil {
		return &fs.PathError{Op: op, Path: b.name, Err: err}
	}
	return nil
}

// Size returns the current size of the file.
func (b *File) Size() (int64, error) {
	var st unix.Stat_t
	err := b.use("size", func() (err error) {
		if b.disk {
			st.Size, err = unix.Seek(b.fd, 0, unix.SEEK_END)
			return err
		}
		return unix.Fstat(b.fd, &st)
	})
	return st.Size, err
}

// Flush returns when everything that was written is durable.
func (b *File) Flush() error {
	return b.use("flush", func() error { return unix.Fdatasync(b.fd) })
}

// Zero makes n bytes from off read as zeros, as a hole if possible. It never extends
// the file.
func (b *File) Zero(off, n int64) error {
	return b.use("zero", func() error {
		return unix.Fallocate(b.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n)
	})
}

// Close closes the descriptors when they are not in use.
func (b *File) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fd < 0 {
		return &fs.PathError{Op: "close", Path: b.name, Err: fs.ErrClosed}
	}
	return b.close()
}

func (b *File) close() error {
	var errs []error
	for _, fd := range []*int{&b.fd, &b.direct} {
		if *fd >= 0 {
			errs = append(errs, os.NewSyscallError("close", unix.Close(*fd)))
			*fd = -1
		}
	}
	return errors.Join(errs...)
}

// ReadV fills the segments from off. It returns fewer bytes, without an error, only
// at the end of the file.
func (b *File) ReadV(segs [][]byte, off int64) (int, error) {
	return b.move("read", unix.SYS_PREADV, segs, off)
}

// WriteV writes the segments at off.
func (b *File) WriteV(segs [][]byte, off int64) (int, error) {
	return b.move("write", unix.SYS_PWRITEV, segs, off)
}

func (b *File) move(op string, trap uintptr, segs [][]byte, off int64) (moved int, err error) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.fd < 0 {
		return 0, &fs.PathError{Op: op, Path: b.name, Err: fs.ErrClosed}
	}
	v := b.vecs.Get()
	defer b.vecs.Put(v)
	v.set(segs)
	defer clear(v.iov) // of its pointers
	direct := b.direct >= 0
	for len(v.left) > 0 {
		// After a short transfer the rest may be unaligned.
		direct = direct && v.fits(off+int64(moved), b.align)
		fd := b.fd
		if direct {
			fd = b.direct
		}
		n, err := v.call(trap, fd, off+int64(moved))
		switch {
		case err == unix.EINVAL && direct:
			direct = false // the file system rejects it
			continue
		case err != nil:
			return moved, &fs.PathError{Op: op, Path: b.name, Err: err}
		case n == 0:
			return moved, nil
		}
		v.advance(n)
		moved += n
	}
	return moved, nil
}
