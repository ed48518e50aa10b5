package nvfs

import (
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// A File is an open file for requests of the module.
type File struct {
	name         string
	fd           int // with O_DIRECT, for the module
	look         int // for SEEK_DATA, which moves the offset
	ino          uint64
	major, minor uint32
	moved        atomic.Bool // a READ has moved bytes of it
}

// NewFile returns a regular file or block device. The descriptors stay the caller's and
// must stay open: fd with O_DIRECT, and look, of the same file with an offset that no one
// else uses. With look = -1 a file with holes cannot be read.
func NewFile(name string, fd, look int) (*File, error) {
	f := &File{name: name, fd: fd, look: look}
	if err := f.identify(); err != nil {
		return nil, fmt.Errorf("nvidia-fs file %s: %w", name, err)
	}
	return f, nil
}

// identify reads what the module compares.
func (f *File) identify() error {
	flags, err := unix.FcntlInt(uintptr(f.fd), unix.F_GETFL, 0)
	if err != nil {
		return err
	}
	if flags&unix.O_DIRECT == 0 {
		return fmt.Errorf("opened without O_DIRECT: %w", syscall.EINVAL)
	}
	var s unix.Stat_t
	if err := unix.Fstat(f.fd, &s); err != nil {
		return err
	}
	device := s.Dev
	if s.Mode&unix.S_IFMT == unix.S_IFBLK {
		device = s.Rdev
	}
	f.ino, f.major, f.minor = s.Ino, unix.Major(device), unix.Minor(device)
	return nil
}

// Moved reports whether a READ has moved bytes of this file to a GPU. Only this proves
// that its storage driver asks the module for addresses; a registered driver does not.
func (f *File) Moved() bool { return f.moved.Load() }

// hole reports whether the file has no data in a range. It is false on a file system
// that does not track holes.
func (f *File) hole(off, n int64) (bool, error) {
	start, err := unix.Seek(f.look, off, unix.SEEK_DATA)
	if errors.Is(err, syscall.ENXIO) {
		return true, nil // no data up to the end
	}
	return err == nil && start >= off+n, err
}
