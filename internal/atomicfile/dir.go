package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A Dir is an open directory. Its methods take paths below it and follow no symbolic
// link on the way, so that a process that renames or replaces something below the
// directory, or the directory itself, cannot redirect them.
type Dir struct {
	file   *os.File
	path   string // for messages
	follow bool
}

// ErrSymlink means that a symbolic link was found where none is followed.
var ErrSymlink = errors.New("symbolic link is not followed")

// OpenDir opens a directory. Symbolic links in path are followed as by [Resolve].
func OpenDir(path string) (*Dir, error) {
	f, err := OpenTarget(path, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	return &Dir{file: f, path: path}, nil
}

// Follow makes the directory follow symbolic links, also those that leave it.
func (d *Dir) Follow() { d.follow = true }

// Path returns the path of a name below the directory, for messages.
func (d *Dir) Path(rel string) string { return filepath.Join(d.path, rel) }

// Close closes the directory.
func (d *Dir) Close() error { return d.file.Close() }

// at calls f with the directory in which rel ends, and its last element.
func (d *Dir) at(op, rel string, f func(fd int, name string) error) error {
	err := d.resolve(rel, f)
	for errors.Is(err, unix.EINTR) {
		err = d.resolve(rel, f)
	}
	if errors.Is(err, unix.ELOOP) && !d.follow {
		err = ErrSymlink
	}
	if err != nil {
		return &fs.PathError{Op: op, Path: d.Path(rel), Err: err}
	}
	return nil
}

func (d *Dir) resolve(rel string, f func(fd int, name string) error) error {
	fd := int(d.file.Fd())
	if d.follow {
		return f(fd, rel)
	}
	elements := strings.Split(rel, "/")
	if slices.Contains(elements, "..") {
		return fs.ErrInvalid
	}
	last := len(elements) - 1
	own := -1
	for _, name := range elements[:last] {
		next, err := unix.Openat(fd, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if own >= 0 {
			unix.Close(own) // a path may have more elements than a process descriptors
		}
		if err != nil {
			return err
		}
		fd, own = next, next
	}
	if own >= 0 {
		defer unix.Close(own)
	}
	return f(fd, elements[last])
}

// noFollow is a flag for the last element.
func (d *Dir) noFollow(flag int) int {
	if d.follow {
		return 0
	}
	return flag
}

// Stat describes a file, or a symbolic link unless the directory follows them.
func (d *Dir) Stat(rel string) (*unix.Stat_t, error) {
	var st unix.Stat_t
	err := d.at("stat", rel, func(fd int, name string) error {
		return unix.Fstatat(fd, name, &st, d.noFollow(unix.AT_SYMLINK_NOFOLLOW))
	})
	return &st, err
}

// OpenFile opens a file as os.OpenFile does, without waiting for the other end of a
// FIFO.
func (d *Dir) OpenFile(rel string, flags int, mode fs.FileMode) (*os.File, error) {
	fd, err := d.openFD(rel, flags, mode)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), d.Path(rel)), nil
}

func (d *Dir) openFD(rel string, flags int, mode fs.FileMode) (got int, err error) {
	if flags&unix.O_CREAT == 0 {
		flags |= unix.O_NONBLOCK
	}
	err = d.at("open", rel, func(fd int, name string) (err error) {
		got, err = unix.Openat(fd, name, flags|d.noFollow(unix.O_NOFOLLOW)|unix.O_CLOEXEC, uint32(mode))
		return err
	})
	return got, err
}

// OpenRegular opens a file for reading, if it is a regular one.
func (d *Dir) OpenRegular(rel string) (*os.File, *unix.Stat_t, error) {
	// Checked before, too: opening a device can have an effect.
	st, err := d.Stat(rel)
	if err != nil {
		return nil, nil, err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
	case unix.S_IFLNK:
		return nil, nil, &fs.PathError{Op: "open", Path: d.Path(rel), Err: ErrSymlink}
	default:
		return nil, nil, notRegular(d.Path(rel))
	}
	fd, err := d.openFD(rel, unix.O_RDONLY, 0)
	if errors.Is(err, unix.ENXIO) { // a socket
		err = notRegular(d.Path(rel))
	}
	if err != nil {
		return nil, nil, err
	}
	err = unix.Fstat(fd, st)
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		err = notRegular(d.Path(rel))
	}
	if err == nil {
		// O_NONBLOCK was for opening. Without it, os.NewFile does not try to poll.
		_, err = unix.FcntlInt(uintptr(fd), unix.F_SETFL, 0)
	}
	if err != nil {
		unix.Close(fd)
		return nil, nil, err
	}
	return os.NewFile(uintptr(fd), d.Path(rel)), st, nil
}

// OpenRegular opens the file at path for reading, if it is a regular one. Symbolic
// links are followed.
func OpenRegular(path string) (*os.File, error) {
	dir, base := filepath.Split(path)
	d, err := openPath(dir + ".") // not cleaned: behind a symbolic link ".." leads elsewhere
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer d.Close()
	d.follow, d.path = true, dir
	f, _, err := d.OpenRegular(base)
	return f, err
}

// openPath opens a directory that need not be readable.
func openPath(path string) (*Dir, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return &Dir{file: os.NewFile(uintptr(fd), path), path: path}, nil
}

// ErrNotRegular means that a name is not that of a regular file.
var ErrNotRegular = errors.New("not a regular file")

func notRegular(path string) error { return &fs.PathError{Op: "open", Path: path, Err: ErrNotRegular} }

// Open opens a directory below.
func (d *Dir) Open(rel string) (*Dir, error) {
	f, err := d.OpenFile(rel, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	return &Dir{file: f, path: d.Path(rel), follow: d.follow}, nil
}

// File returns the open directory. It remains the Dir's.
func (d *Dir) File() *os.File { return d.file }

// Names lists a directory, sorted.
func (d *Dir) Names(rel string) ([]string, error) {
	sub, err := d.Open(rel)
	if err != nil {
		return nil, err
	}
	defer sub.Close()
	list, err := sub.file.Readdirnames(-1)
	slices.Sort(list)
	return list, err
}

// Readlink returns the target of a symbolic link.
func (d *Dir) Readlink(rel string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n := 0
	err := d.at("readlink", rel, func(fd int, name string) (err error) {
		n, err = unix.Readlinkat(fd, name, buf)
		return err
	})
	return string(buf[:n]), err
}

// Mkdir creates a directory.
func (d *Dir) Mkdir(rel string, mode fs.FileMode) error {
	return d.at("mkdir", rel, func(fd int, name string) error { return unix.Mkdirat(fd, name, uint32(mode)) })
}

// Symlink creates a symbolic link.
func (d *Dir) Symlink(target, rel string) error {
	return d.at("symlink", rel, func(fd int, name string) error { return unix.Symlinkat(target, fd, name) })
}

// Link gives the file old another name.
func (d *Dir) Link(old, rel string) error {
	return d.at("link", rel, func(fd int, name string) error {
		return d.at("link", old, func(from int, oldName string) error { return unix.Linkat(from, oldName, fd, name, 0) })
	})
}

// Rename renames the file old.
func (d *Dir) Rename(old, rel string) error {
	return d.at("rename", rel, func(fd int, name string) error {
		return d.at("rename", old, func(from int, oldName string) error { return unix.Renameat(from, oldName, fd, name) })
	})
}

// Remove removes a file or an empty directory. It need not exist.
func (d *Dir) Remove(rel string) error {
	return d.at("remove", rel, func(fd int, name string) error {
		err := unix.Unlinkat(fd, name, 0)
		if isAny(err, unix.EISDIR, unix.EPERM) {
			if derr := unix.Unlinkat(fd, name, unix.AT_REMOVEDIR); !errors.Is(derr, unix.ENOTDIR) {
				err = derr
			}
		}
		if errors.Is(err, unix.ENOENT) {
			return nil
		}
		return err
	})
}

// RemoveAll removes a file or a directory with its contents. It need not exist.
func (d *Dir) RemoveAll(rel string) error {
	err := d.Remove(rel)
	if !isAny(err, unix.ENOTEMPTY, unix.EEXIST) {
		return err
	}
	list, err := d.Names(rel)
	if err != nil {
		return err
	}
	for _, name := range list {
		if err := d.RemoveAll(rel + "/" + name); err != nil {
			return err
		}
	}
	return d.Remove(rel)
}

// Sync forces the names in the directory to storage. File systems that cannot do so
// have nothing to force.
func (d *Dir) Sync() error {
	if err := d.file.Sync(); err != nil && !errors.Is(err, unix.EINVAL) {
		return err
	}
	return nil
}
