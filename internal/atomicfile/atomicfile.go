// Package atomicfile publishes files whole: a crash at any moment leaves the old
// file or the new one. A new file is written under a temporary name, or none,
// forced to storage, and renamed.
//
// A killed process leaves its temporary file. Its writer holds a lock on it, so
// that [Sweep] can tell a leftover from a file that is being written.
package atomicfile

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Suffix ends the names of temporary files that [Sweep] removes.
const Suffix = ".culvert-tmp"

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
	target string
	opts   Options
	temp   string // its path; empty while it has no name, and after Commit
}

// Write replaces the file at path by what write writes, and removes leftovers of
// earlier writers.
func Write(path string, mode fs.FileMode, write func(io.Writer) error) error {
	Sweep(path)
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

// Create creates a temporary file that Commit makes the target. The caller must
// call Discard.
func Create(target string, o Options) (*File, error) {
	if o.Step == nil {
		o.Step = func(string) {}
	}
	f := &File{target: target, opts: o}
	if err := f.create(); err != nil {
		// The name of the temporary file means nothing to a user.
		if pe, ok := errors.AsType[*fs.PathError](err); ok {
			err = pe.Err
		}
		return nil, &fs.PathError{Op: "create", Path: target, Err: err}
	}
	return f, nil
}

func (f *File) create() error {
	if f.opts.Unnamed {
		f.opts.Step("create")
		fd, err := unix.Open(filepath.Dir(f.target), unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, uint32(f.opts.Mode))
		if err == nil {
			f.File = os.NewFile(uintptr(fd), f.target)
			_, err := f.lock()
			return err
		}
		if !isAny(err, unix.EOPNOTSUPP, unix.EISDIR, unix.EINVAL, unix.ENOSYS) {
			return err
		}
	}
	for {
		temp, err := f.newTemp()
		if err != nil {
			return err
		}
		f.opts.Step("create")
		f.File, err = create(temp, f.opts)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return err
		}
		f.temp = temp
		ok, err := f.lock()
		if err != nil {
			f.Discard()
			return err
		}
		if ok {
			return nil
		}
		f.Close() // another process took it for a leftover
	}
}

// newTemp returns a path for the temporary file.
func (f *File) newTemp() (string, error) {
	dir, base := filepath.Split(f.target)
	if f.opts.Temp == "" {
		return filepath.Join(dir, "."+base+"."+rand.Text()[:8]+Suffix), nil
	}
	temp := filepath.Join(dir, f.opts.Temp)
	return temp, remove(temp)
}

func create(name string, o Options) (*os.File, error) {
	if !o.Dir {
		return os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, o.Mode)
	}
	if err := os.Mkdir(name, o.Mode); err != nil {
		return nil, err
	}
	f, err := os.Open(name)
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
	here, err := f.Stat()
	if err != nil {
		return false, err
	}
	there, err := os.Lstat(f.temp)
	return err == nil && os.SameFile(here, there), nil
}

// Commit gives the file its name and forces the name to storage. The caller must
// have synced the file.
func (f *File) Commit() error {
	if f.temp == "" {
		f.opts.Step("link")
		err := f.link(f.target)
		if err == nil {
			return f.syncDir()
		}
		if !errors.Is(err, fs.ErrExist) {
			return err
		}
		// Only a file with a name can replace another.
		temp, err := f.newTemp()
		if err != nil {
			return err
		}
		if err := f.link(temp); err != nil {
			return err
		}
		f.temp = temp
	}
	f.opts.Step("rename")
	if err := os.Rename(f.temp, f.target); err != nil {
		return err
	}
	f.temp = ""
	return f.syncDir()
}

// link gives an unnamed file a name.
func (f *File) link(name string) error {
	from := "/proc/self/fd/" + strconv.Itoa(int(f.Fd()))
	if err := unix.Linkat(unix.AT_FDCWD, from, unix.AT_FDCWD, name, unix.AT_SYMLINK_FOLLOW); err != nil {
		return fmt.Errorf("name %s: %w", name, err)
	}
	return nil
}

func (f *File) syncDir() error {
	f.opts.Step("sync directory")
	return SyncDir(filepath.Dir(f.target))
}

// Discard closes the file, and removes it unless it was committed.
func (f *File) Discard() error {
	var err error
	if f.temp != "" {
		err = os.RemoveAll(f.temp)
	}
	return errors.Join(err, f.Close())
}

// Sweep removes temporary files of killed processes whose target's path begins
// with prefix. It leaves those that are being written, and those that the process
// may not remove.
func Sweep(prefix string) {
	dir, base := filepath.Split(prefix)
	list, _ := os.ReadDir(filepath.Clean(dir + "."))
	for _, e := range list {
		if strings.HasPrefix(e.Name(), "."+base) && strings.HasSuffix(e.Name(), Suffix) {
			removeLeftover(filepath.Join(dir, e.Name()))
		}
	}
}

func removeLeftover(name string) {
	// Opening a FIFO must not wait for its writer.
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return
	}
	defer f.Close()
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
		_ = os.RemoveAll(name)
	}
}

// Symlink makes path a symbolic link to target, which has the name temp at first.
// A file of that name is a leftover. step is called as Options.Step is.
func Symlink(target, path, temp string, step func(name string)) error {
	step("remove")
	if err := remove(temp); err != nil {
		return err
	}
	step("link")
	if err := os.Symlink(target, temp); err != nil {
		return err
	}
	step("rename")
	if err := os.Rename(temp, path); err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	return nil
}

// remove removes a file that need not exist.
func remove(name string) error {
	if err := os.Remove(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// LockDir waits until no other process has locked the directory. It does nothing
// where the directory cannot be opened for reading or locked.
func LockDir(dir string) (unlock func() error, err error) {
	d, err := os.Open(dir)
	if errors.Is(err, fs.ErrPermission) {
		return func() error { return nil }, nil
	}
	if err != nil {
		return nil, err
	}
	for {
		if err = unix.Flock(int(d.Fd()), unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil && !unsupported(err) {
		d.Close()
		return nil, &fs.PathError{Op: "flock", Path: dir, Err: err}
	}
	return d.Close, nil
}

// unsupported reports whether the file system lacks such locks. NFS has some, but
// not on directories and not through descriptors that only read.
func unsupported(err error) bool {
	return isAny(err, unix.ENOTSUP, unix.ENOLCK, unix.ENOSYS, unix.EINVAL, unix.EBADF)
}

// SyncDir forces the names in a directory to storage. File systems that cannot do
// so have nothing to force.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, unix.EINVAL) {
		return err
	}
	return nil
}

func isAny(err error, list ...error) bool {
	return slices.ContainsFunc(list, func(e error) bool { return errors.Is(err, e) })
}
