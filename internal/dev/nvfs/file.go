package nvfs

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// A File is an open file as the module wants to be told of it.
type File struct {
	name         string
	fd           int // for the module, with O_DIRECT
	look         int // to look for holes with: that moves the offset
	borrowed     bool
	ino          uint64
	major, minor uint32
	moved        atomic.Bool // a READ has moved bytes of it
}

// NewFile takes a regular file or a block device that was opened with O_DIRECT. It
// takes descriptors of its own: the file may be closed.
func NewFile(f *os.File) (*File, error) {
	n := &File{name: f.Name(), fd: -1, look: -1}
	conn, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	err = os.ErrClosed // the one reason why the function is not called
	_ = conn.Control(func(fd uintptr) { err = n.take(int(fd)) })
	if err != nil {
		return nil, errors.Join(fmt.Errorf("nvidia-fs file %s: %w", n.name, err), n.Close())
	}
	return n, nil
}

func (f *File) take(fd int) (err error) {
	if f.fd, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0); err != nil {
		return err
	}
	flags, err := f.identify()
	if err != nil {
		return err
	}
	f.look, err = unix.Open(fmt.Sprintf("/proc/self/fd/%d", f.fd), flags&unix.O_ACCMODE|unix.O_CLOEXEC, 0)
	return err
}

// Borrow takes descriptors that stay the caller's and open for as long as the File
// is used: fd with O_DIRECT, and look, of the same file but with an offset that
// nobody else uses. Without look, which is -1 then, a file with holes cannot be
// read.
func Borrow(name string, fd, look int) (*File, error) {
	f := &File{name: name, fd: fd, look: look, borrowed: true}
	if _, err := f.identify(); err != nil {
		return nil, fmt.Errorf("nvidia-fs file %s: %w", name, err)
	}
	return f, nil
}

// identify finds out what the module compares.
func (f *File) identify() (flags int, err error) {
	if flags, err = unix.FcntlInt(uintptr(f.fd), unix.F_GETFL, 0); err != nil {
		return 0, err
	}
	if flags&unix.O_DIRECT == 0 {
		return 0, fmt.Errorf("open it with O_DIRECT: %w", syscall.EINVAL)
	}
	var s unix.Stat_t
	if err := unix.Fstat(f.fd, &s); err != nil {
		return 0, err
	}
	device := s.Dev
	if s.Mode&unix.S_IFMT == unix.S_IFBLK {
		device = s.Rdev
	}
	f.ino, f.major, f.minor = s.Ino, unix.Major(device), unix.Minor(device)
	return flags, nil
}

// Moved reports whether a READ has moved bytes of this file to a GPU: the one proof
// that the storage driver under it asks the module for addresses. That some driver
// has registered is none.
func (f *File) Moved() bool { return f.moved.Load() }

// Close gives the file's own descriptors back. No transfer may be under way.
func (f *File) Close() error {
	if f.borrowed {
		return nil
	}
	var errs []error
	for _, fd := range []*int{&f.fd, &f.look} {
		if *fd >= 0 {
			errs = append(errs, unix.Close(*fd))
			*fd = -1
		}
	}
	return errors.Join(errs...)
}

// hole reports whether the file has nothing in a range. A file system that does
// not know says no.
func (f *File) hole(off, n int64) (bool, error) {
	start, err := unix.Seek(f.look, off, unix.SEEK_DATA)
	if errors.Is(err, syscall.ENXIO) {
		return true, nil // nothing up to the end
	}
	return err == nil && start >= off+n, err
}
