package atomicfile

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrUntrusted means that a path leads over a symbolic link of another user.
var ErrUntrusted = errors.New("symbolic link of another user, in a directory that all users can write to, is not followed (fix: remove it, or name the file that it points to)")

// maxLinks limits the symbolic links of a path, as Linux does.
const maxLinks = 40

// A resolver walks a path, an element at a time, so that nothing can change between
// looking at a symbolic link and following it.
type resolver struct {
	dir   *Dir // where it is
	rest  []string
	links int
}

// Resolve follows the symbolic links of a path that a user gave, and returns the
// directory in which it ends, and its last element: no link, or a file that does not
// exist. The caller must close the directory.
//
// It follows no link that another user has put into a directory to which all users
// can write: that user would choose the file which a program writes. Linux does the
// same if fs.protected_symlinks is set.
func Resolve(path string) (*Dir, string, error) {
	r := &resolver{rest: strings.Split(path, "/")}
	fail := func(err error) (*Dir, string, error) {
		if r.dir != nil {
			r.dir.Close()
		}
		return nil, "", &fs.PathError{Op: "open", Path: path, Err: err}
	}
	if path == "" {
		return fail(unix.ENOENT)
	}
	root := "."
	if filepath.IsAbs(path) {
		root = "/"
	}
	if err := r.enter(unix.AT_FDCWD, root, root); err != nil {
		return fail(err)
	}
	for {
		name, last := r.next()
		err := r.step(name, last)
		if errors.Is(err, errEnd) {
			return r.dir, name, nil
		}
		if err != nil {
			return fail(err)
		}
	}
}

// errEnd ends a walk.
var errEnd = errors.New("end of the path")

// next takes the next element. A path that ends in a slash ends in ".".
func (r *resolver) next() (name string, last bool) {
	for len(r.rest) > 1 && (r.rest[0] == "" || r.rest[0] == ".") {
		r.rest = r.rest[1:]
	}
	name, r.rest = r.rest[0], r.rest[1:]
	return cmp.Or(name, "."), len(r.rest) == 0
}

// step goes over one element.
func (r *resolver) step(name string, last bool) error {
	at := int(r.dir.file.Fd())
	fd, err := unix.Openat(at, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if last && errors.Is(err, unix.ENOENT) {
		return errEnd
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	switch {
	case st.Mode&unix.S_IFMT == unix.S_IFLNK && !inProc(r.dir):
		return r.follow(fd, &st)
	case last:
		return errEnd
	}
	return r.enter(at, name, filepath.Join(r.dir.path, name))
}

// inProc reports whether the links in a directory are the kernel's, and lead where no
// path may lead.
func inProc(d *Dir) bool {
	var s unix.Statfs_t
	return unix.Fstatfs(int(d.file.Fd()), &s) == nil && s.Type == unix.PROC_SUPER_MAGIC
}

// enter goes to a directory.
func (r *resolver) enter(at int, name, path string) error {
	fd, err := unix.Openat(at, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if r.dir != nil {
		r.dir.Close()
	}
	r.dir = &Dir{file: os.NewFile(uintptr(fd), path), path: path}
	return nil
}

// follow puts the target of a link before the rest of the path.
func (r *resolver) follow(fd int, link *unix.Stat_t) error {
	if r.links++; r.links > maxLinks {
		return unix.ELOOP
	}
	var dir unix.Stat_t
	if err := unix.Fstat(int(r.dir.file.Fd()), &dir); err != nil {
		return err
	}
	if !trusted(link, &dir) {
		return fmt.Errorf("%w: user %d", ErrUntrusted, link.Uid)
	}
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", buf)
	if err != nil {
		return err
	}
	target := string(buf[:n])
	r.rest = append(strings.Split(target, "/"), r.rest...)
	if filepath.IsAbs(target) {
		return r.enter(unix.AT_FDCWD, "/", "/")
	}
	return nil
}

// trusted reports whether a link may be followed.
func trusted(link, dir *unix.Stat_t) bool {
	const others = 0o002
	return dir.Mode&others == 0 || link.Uid == 0 || int(link.Uid) == os.Geteuid() || link.Uid == dir.Uid
}

// RealPath returns a path without symbolic links for one that may have some. The last
// element need not exist.
func RealPath(path string) (string, error) {
	d, name, err := Resolve(path)
	if err != nil {
		return "", err
	}
	defer d.Close()
	return filepath.Join(d.path, name), nil
}

// OpenTarget opens a file for writing as os.OpenFile does, without following links of
// other users as [Resolve] does.
func OpenTarget(path string, flags int, mode fs.FileMode) (*os.File, error) {
	d, name, err := Resolve(path)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	if inProc(d) {
		d.Follow()
	}
	fd, err := unix.Openat(int(d.file.Fd()), name, flags|d.noFollow(unix.O_NOFOLLOW)|unix.O_CLOEXEC, uint32(mode))
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}
