// Package atomicfile publishes files whole: a crash at any moment leaves the old
// file or the new one. A new file is written under a temporary name, or none,
// forced to storage, and renamed.
//
// A killed process leaves its temporary file. Its writer holds a lock on it, so
// that [Sweep] can tell a leftover from a file that is being written.
//
// Other users may be able to read or write the directory. Nothing that they create
// or lock is waited for, and leftovers that the process may not remove are ignored.
package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Options refine [Create].
type Options struct {
	Mode fs.FileMode // before the umask
	Dir  bool        // create a directory
	// Unnamed creates a file without a name where the file system supports
	// O_TMPFILE, so that a crash before Commit leaves nothing.
	Unnamed bool
	// Temp is the base name of the temporary file. The caller is its only writer:
	// a file of that name is a leftover. If empty, the name is unique.
	Temp string
	// Step is called before each step that a crash can follow. It may be nil.
	Step func(name string)
}

// A File is a temporary file or directory beside its target.
type File struct {
	*os.File
	dir  *Dir // in which the target is
	mine bool // dir is closed with the file
	name string
	opts Options
	temp string // its name; empty while it has none, and after Commit
}

// Write replaces the file at path by what write writes, and removes leftovers of
// earlier writers. It replaces nothing that is not [Replaceable].
func Write(path string, mode fs.FileMode, write func(io.Writer) error) error {
	if err := Replaceable(path); err != nil {
		return &fs.PathError{Op: "create", Path: path, Err: err}
	}
	Sweep(filepath.Dir(path))
	f, err := Create(path, Options{Mode: mode})
	if err != nil {
		return err
	}
	defer f.Discard()
	if err := write(f); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return f.Commit()
}

// Replaceable reports a target that cannot be replaced: a device, a pipe or a socket, or a
// link to one. Renaming a file to /dev/null would remove the device.
func Replaceable(target string) error {
	st, err := os.Stat(target)
	if err != nil || st.Mode().IsRegular() || st.IsDir() {
		return nil // renaming to a directory fails
	}
	return fmt.Errorf("%w, so it is not replaced", ErrNotRegular)
}

// Create creates a temporary file that Commit makes the target. The caller must
// call Discard.
func Create(target string, o Options) (*File, error) {
	dir, err := OpenDir(filepath.Dir(target))
	if err != nil {
		return nil, targetError(target, err)
	}
	f, err := CreateIn(dir, filepath.Base(target), o)
	if err != nil {
		dir.Close()
		return nil, targetError(target, err)
	}
	f.mine = true
	return f, nil
}

// CreateIn does the same for a target in an open directory: whatever takes the place
// of that directory, the file is not put into it. dir must stay open.
func CreateIn(dir *Dir, name string, o Options) (*File, error) {
	if o.Step == nil {
		o.Step = func(string) {}
	}
	f := &File{dir: dir, name: name, opts: o}
	if Temporary(name) || IsPart(name) {
		return nil, targetError(dir.Path(name), ErrTemporary)
	}
	if err := f.create(); err != nil {
		return nil, targetError(dir.Path(name), err)
	}
	return f, nil
}

// targetError hides the name of the temporary file, which means nothing to a user.
func targetError(target string, err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		err = pe.Err
	}
	return &fs.PathError{Op: "create", Path: target, Err: err}
}

func (f *File) create() error {
	if f.opts.Unnamed {
		f.opts.Step("create")
		if ok, err := f.createUnnamed(); ok || err != nil {
			return err
		}
	}
	for range maxTries {
		temp, err := f.newTemp()
		if err != nil {
			return err
		}
		f.opts.Step("create")
		f.File, err = create(f.dir, temp, f.opts)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return err
		}
		f.temp = temp
		ok, err := f.lock()
		if ok {
			return nil
		}
		// Without an error, another process took it for a leftover.
		if err = errors.Join(err, f.dir.RemoveAll(temp), f.Close()); err != nil {
			return err
		}
	}
	return errBusy
}

// maxTries limits how often a name is chosen anew because another process removed
// or locked the file.
const maxTries = 100

var errBusy = fmt.Errorf("other processes remove or lock temporary files there (%d tries): %w", maxTries, unix.EBUSY)

// createUnnamed creates a file without a name, if one can be given to it later:
// only root can do so without /proc.
func (f *File) createUnnamed() (bool, error) {
	fd, err := unix.Openat(int(f.dir.file.Fd()), ".", unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, uint32(f.opts.Mode))
	if isAny(err, unix.EOPNOTSUPP, unix.EISDIR, unix.EINVAL, unix.ENOSYS) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	f.File = os.NewFile(uintptr(fd), f.dir.Path(f.name))
	if !hasProc() {
		return false, f.Close()
	}
	return true, nil
}

// hasProc reports whether a file without a name can get one.
var hasProc = sync.OnceValue(func() bool { return unix.Access("/proc/self/fd", unix.X_OK) == nil })

func procPath(f *os.File) string { return "/proc/self/fd/" + strconv.Itoa(int(f.Fd())) }

// newTemp returns a name for the temporary file.
func (f *File) newTemp() (string, error) {
	if f.opts.Temp == "" {
		return tempName(f.name), nil
	}
	return f.opts.Temp, f.dir.Remove(f.opts.Temp)
}

func create(dir *Dir, name string, o Options) (*os.File, error) {
	if !o.Dir {
		return dir.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, o.Mode)
	}
	if err := dir.Mkdir(name, o.Mode); err != nil {
		return nil, err
	}
	f, err := dir.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fs.ErrExist // another process took it for a leftover: use another name
	}
	return f, err
}

// lock marks the file as being written, and reports whether it is still there.
func (f *File) lock() (bool, error) {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		return false, nil
	case unsupported(err):
		return true, nil // then Sweep removes nothing either
	case err != nil:
		return false, &fs.PathError{Op: "flock", Path: f.Name(), Err: err}
	case f.temp == "":
		return true, nil
	}
	return f.dir.named(f.File, f.temp), nil
}

// named reports whether an open file still has its name.
func (d *Dir) named(f *os.File, name string) bool {
	var here unix.Stat_t
	if unix.Fstat(int(f.Fd()), &here) != nil {
		return false
	}
	there, err := d.Stat(name)
	return err == nil && here.Ino == there.Ino && here.Dev == there.Dev
}

// Commit gives the file its name and forces the name to storage. The caller must
// have synced the file.
func (f *File) Commit() error {
	if err := f.Publish(); err != nil {
		return err
	}
	f.opts.Step("sync directory")
	return f.dir.Sync()
}

// Publish gives the file its name. The caller must have synced the file, and must sync
// the directory before it relies on the name: once for all files that it publishes there.
func (f *File) Publish() error {
	if f.temp == "" {
		f.opts.Step("link")
		err := f.link(f.name)
		if !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := f.linkTemp(); err != nil {
			return err
		}
	}
	f.opts.Step("rename")
	if err := f.dir.Rename(f.temp, f.name); err != nil {
		return err
	}
	f.temp = ""
	return nil
}

// linkTemp gives an unnamed file a temporary name: only a file with a name can replace
// another. It is locked first, or Sweep would take it for a leftover.
func (f *File) linkTemp() error {
	if _, err := f.lock(); err != nil {
		return err
	}
	temp, err := f.newTemp()
	if err != nil {
		return err
	}
	f.opts.Step("link")
	if err := f.link(temp); err != nil {
		return err
	}
	f.temp = temp
	return nil
}

// needsProc is true once the kernel has linked an open file by its path in /proc only: to do
// so by the descriptor needs CAP_DAC_READ_SEARCH, or Linux 6.10.
var needsProc atomic.Bool

// link gives an unnamed file a name. To find it in /proc takes as long as the link: the
// kernel makes a directory entry and an inode for each descriptor that is looked up there.
func (f *File) link(name string) error {
	dir, err := int(f.dir.file.Fd()), error(unix.ENOENT)
	if !needsProc.Load() {
		err = unix.Linkat(int(f.Fd()), "", dir, name, unix.AT_EMPTY_PATH)
	}
	if errors.Is(err, unix.ENOENT) { // not permitted, or the directory is gone
		if err = unix.Linkat(unix.AT_FDCWD, procPath(f.File), dir, name, unix.AT_SYMLINK_FOLLOW); err == nil {
			needsProc.Store(true)
		}
	}
	if err != nil {
		return fmt.Errorf("name %s: %w", f.dir.Path(name), err)
	}
	return nil
}

// Discard closes the file, and removes it unless it was committed.
func (f *File) Discard() error {
	var err error
	if f.temp != "" {
		err = f.dir.RemoveAll(f.temp)
	}
	err = errors.Join(err, f.Close())
	if f.mine {
		err = errors.Join(err, f.dir.Close())
	}
	return err
}

// unsupported reports whether the file system lacks such locks. NFS has some, but
// not on directories and not through descriptors that only read.
func unsupported(err error) bool {
	return isAny(err, unix.ENOTSUP, unix.ENOLCK, unix.ENOSYS, unix.EINVAL, unix.EBADF)
}

func isAny(err error, list ...error) bool {
	return slices.ContainsFunc(list, func(e error) bool { return errors.Is(err, e) })
}
