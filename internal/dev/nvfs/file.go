package nvfs

import (
	"bytes"
	"errors"
	"fmt"
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

// hole reports whether a range of the file reads as zeros, so that a hole which the
// module found there can be one. SEEK_DATA answers fast, but not always: it calls
// unwritten blocks data while clean pages of them are cached, and a block device or a
// file system may not have it. Then the bytes themselves are read.
func (f *File) hole(off, n int64) (bool, error) {
	start, err := unix.Seek(f.look, off, unix.SEEK_DATA)
	switch {
	case errors.Is(err, syscall.ENXIO):
		return true, nil // no data up to the end
	case errors.Is(err, syscall.EBADF):
		return false, err
	case err == nil && start >= off+n:
		return true, nil
	}
	return f.zeros(off, n)
}

// zeroStep is how much zeros reads at a time.
const zeroStep = 256 << 10

// zeros reports whether all bytes of a range are zero. The memory is aligned, because
// look may have O_DIRECT.
func (f *File) zeros(off, n int64) (bool, error) {
	b, err := unix.Mmap(-1, 0, zeroStep, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return false, err
	}
	defer unix.Munmap(b)
	for end := off + n; off < end; {
		k, err := unix.Pread(f.look, b, off)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			return false, err
		case k == 0:
			return true, nil // the file ends here
		}
		if len(bytes.Trim(b[:min(int64(k), end-off)], "\x00")) > 0 {
			return false, nil
		}
		off += int64(k)
	}
	return true, nil
}
