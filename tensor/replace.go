package tensor

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// This file is about replacing a file so that a crash, at any moment, leaves
// the old one or the new one: the new one is written under another name, forced
// to storage, and renamed.
//
// A process that is killed leaves its temporary file behind. Temporary files are
// locked by whoever writes them, so the next save in that directory can tell a
// dead one, which it removes, from one that is being written.

const tempSuffix = ".culvert-tmp"

// A temp is a temporary file or directory in the directory of its target.
type temp struct {
	*os.File
	target string
	hold   func(string)
}

// newTemp makes a temporary file for target, or a directory.
func newTemp(target string, dir bool, mode fs.FileMode, hold func(string)) (*temp, error) {
	for {
		name := filepath.Join(filepath.Dir(target), "."+filepath.Base(target)+"."+rand.Text()[:8]+tempSuffix)
		hold("create")
		f, err := create(name, dir, mode)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return nil, uncreated(target, err)
		}
		t := &temp{f, target, hold}
		ok, err := t.lock()
		if err != nil {
			t.discard()
			return nil, err
		}
		if ok {
			return t, nil
		}
		f.Close() // somebody took it for a dead one
	}
}

// uncreated is why a target cannot be made, without the name of the temporary file,
// which nobody knows.
func uncreated(target string, err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return &fs.PathError{Op: "create", Path: target, Err: pe.Err}
	}
	return err
}

func create(name string, dir bool, mode fs.FileMode) (*os.File, error) {
	if !dir {
		return os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, mode)
	}
	if err := os.Mkdir(name, mode); err != nil {
		return nil, err
	}
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fs.ErrExist // somebody took it for a dead one: not this name
	}
	return f, err
}

// lock marks the file as alive, and reports whether it is still there.
func (t *temp) lock() (bool, error) {
	err := unix.Flock(int(t.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		return false, nil
	case err != nil && lockless(err):
		return true, nil // then nothing is taken for dead either
	case err != nil:
		return false, &os.PathError{Op: "flock", Path: t.Name(), Err: err}
	}
	here, err := t.Stat()
	if err != nil {
		return false, err
	}
	there, err := os.Lstat(t.Name())
	return err == nil && os.SameFile(here, there), nil
}

// commit gives the file its name. It must have been synced.
func (t *temp) commit() error {
	t.hold("rename")
	return os.Rename(t.Name(), t.target)
}

// discard removes the file, unless it was committed.
func (t *temp) discard() error {
	return errors.Join(os.RemoveAll(t.Name()), t.Close())
}

// removeDead removes temporary files of target that nobody writes any more.
func removeDead(target string) error {
	dir, base := filepath.Split(target)
	list, err := os.ReadDir(filepath.Clean(dir + "."))
	if err != nil {
		return uncreated(target, err)
	}
	for _, e := range list {
		if !strings.HasPrefix(e.Name(), "."+base) || !strings.HasSuffix(e.Name(), tempSuffix) {
			continue
		}
		if err := removeIfDead(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

func removeIfDead(name string) error {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil
	}
	return os.RemoveAll(name)
}

// lockDir waits until no other process renames in a directory.
func lockDir(dir string) (unlock func() error, err error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(d.Fd()), unix.LOCK_EX)
	for errors.Is(err, unix.EINTR) {
		err = unix.Flock(int(d.Fd()), unix.LOCK_EX)
	}
	if err != nil && !lockless(err) {
		d.Close()
		return nil, &os.PathError{Op: "flock", Path: dir, Err: err}
	}
	return d.Close, nil
}

// lockless reports whether the file system has no such locks. NFS has some, but
// not on directories and not through descriptors that only read.
func lockless(err error) bool {
	return slices.ContainsFunc([]error{unix.ENOTSUP, unix.ENOLCK, unix.ENOSYS, unix.EINVAL, unix.EBADF},
		func(e error) bool { return errors.Is(err, e) })
}

// syncDir forces the names in a directory to storage.
func syncDir(dir string, hold func(string)) error {
	hold("sync directory")
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, unix.EINVAL) { // some file systems have nothing to sync
		return err
	}
	return nil
}

// removeFile removes a name that need not exist.
func removeFile(path string, hold func(string)) (removed bool, err error) {
	hold("remove")
	err = os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// realTarget follows a symbolic link, so that the file is replaced and not the
// link, and finds the mode that the new file should have.
func realTarget(path string) (string, fs.FileMode, error) {
	const mode = 0o644
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		return path, mode, nil
	}
	if err != nil {
		return "", 0, err
	}
	st, err := os.Stat(real)
	if err != nil {
		return "", 0, err
	}
	if !st.Mode().IsRegular() {
		return "", 0, fmt.Errorf("%s: not a regular file", path)
	}
	return real, st.Mode().Perm(), nil
}
