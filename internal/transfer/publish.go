package transfer

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// An output is a file that has no name yet. Where the file system allows it the
// kernel keeps it so: whoever dies leaves nothing behind. Elsewhere it has a
// temporary name beside its destination.
type output struct {
	*os.File
	dst  string
	temp string // its name beside dst, where it must have one
	has  bool   // it has that name
	hold func()
}

// newOutput makes the file that will become dst. A file that has its temporary
// name is a dead copy's and goes.
func newOutput(dst string, o *Options) (*output, error) {
	out := &output{dst: dst, temp: filepath.Join(filepath.Dir(dst), o.temp), hold: o.hold}
	out.hold()
	if !o.named {
		fd, err := unix.Open(filepath.Dir(dst), unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
		if err == nil {
			out.File = os.NewFile(uintptr(fd), dst)
			return out, nil
		}
		if !tmpless(err) {
			return nil, err
		}
	}
	if err := removeOld(out.temp); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(out.temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	out.File, out.has = f, true
	return out, nil
}

// tmpless reports whether the file system has no files without names.
func tmpless(err error) bool {
	return errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS)
}

func removeOld(name string) error {
	if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// publish gives the finished file its name: all of it is on storage before, and
// the name after.
func (o *output) publish(mode os.FileMode) error {
	if err := o.Chmod(mode); err != nil {
		return err
	}
	o.hold()
	if err := o.Sync(); err != nil {
		return err
	}
	o.hold()
	if !o.has {
		err := linkTo(o.File, o.dst)
		if err == nil {
			return syncDir(filepath.Dir(o.dst))
		}
		if !errors.Is(err, unix.EEXIST) {
			return err
		}
		// Only a file that has a name can take the place of another.
		if err := removeOld(o.temp); err != nil {
			return err
		}
		if err := linkTo(o.File, o.temp); err != nil {
			return err
		}
		o.has = true
	}
	o.hold()
	if err := os.Rename(o.temp, o.dst); err != nil {
		return err
	}
	o.has = false
	return syncDir(filepath.Dir(o.dst))
}

func linkTo(f *os.File, name string) error {
	from := "/proc/self/fd/" + strconv.Itoa(int(f.Fd()))
	if err := unix.Linkat(unix.AT_FDCWD, from, unix.AT_FDCWD, name, unix.AT_SYMLINK_FOLLOW); err != nil {
		return fmt.Errorf("name %s: %w", name, err)
	}
	return nil
}

// discard closes the file, and removes it unless it was published.
func (o *output) discard() error {
	err := o.Close()
	if o.has {
		err = errors.Join(err, os.Remove(o.temp))
	}
	return err
}

func syncDir(name string) error {
	dir, err := os.Open(name)
	if err != nil {
		return err
	}
	defer dir.Close()
	// Some file systems cannot sync a directory; the rename has happened.
	if err := dir.Sync(); err != nil && !errors.Is(err, unix.EINVAL) {
		return err
	}
	return nil
}

// A flusher sends what was written to storage as the copy goes on, and waits for
// what is older: so the last sync is short, and a copy that is stopped does not
// wait for gigabytes.
type flusher struct {
	fd   int
	sync func(fd int, off, n int64, flags int) error
	last piece
	off  bool // the system has no such thing
}

// wrote takes a piece that was written. An error of the disk must be told at once:
// the kernel tells a descriptor of it only once, and a later fsync would succeed.
func (f *flusher) wrote(p piece) error {
	if f.off {
		return nil
	}
	const wait = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER
	err := f.send(p, unix.SYNC_FILE_RANGE_WRITE)
	if err == nil && f.last.mem.Len > 0 {
		err = f.send(f.last, wait)
	}
	f.last = p
	if syncless(err) {
		f.off = true
		return nil
	}
	return os.NewSyscallError("sync_file_range", err)
}

func (f *flusher) send(p piece, flags int) error {
	return f.sync(f.fd, p.off, int64(p.mem.Len), flags)
}

// syncless reports an answer that is not the disk's: a sandbox or an emulated
// kernel does not know the call.
func syncless(err error) bool {
	return errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EINVAL) ||
		errors.Is(err, unix.ESPIPE) || errors.Is(err, unix.EOPNOTSUPP)
}
