package remote

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/atomicfile"
)

// Exports are the files that a server has: files under their base names, and what is
// in directories under DIRECTORY/NAME. Symbolic links inside a directory are followed
// as long as they stay in it.
type Exports struct {
	files map[string]string   // name to path
	dirs  map[string]*os.Root // base name to directory
}

// NewExports opens the given files and directories.
func NewExports(paths []string) (*Exports, error) {
	e := &Exports{files: map[string]string{}, dirs: map[string]*os.Root{}}
	for _, p := range paths {
		if err := e.add(p); err != nil {
			e.Close()
			return nil, err
		}
	}
	return e, nil
}

func (e *Exports) add(p string) error {
	abs, err := filepath.Abs(p)
	if err != nil {
		return err
	}
	st, err := os.Stat(abs)
	if err != nil {
		return err
	}
	name := filepath.Base(abs)
	if e.files[name] != "" || e.dirs[name] != nil {
		return fmt.Errorf("%s: another path is already served as %s (fix: rename one of them)", p, name)
	}
	switch {
	case st.IsDir():
		e.dirs[name], err = os.OpenRoot(abs)
		return err
	case st.Mode().IsRegular():
		e.files[name] = abs
		return nil
	}
	return fmt.Errorf("%s: neither a regular file nor a directory", p)
}

// Names lists the served files and directories.
func (e *Exports) Names() []string {
	var list []string
	for name := range e.files {
		list = append(list, name)
	}
	for name := range e.dirs {
		list = append(list, name+"/")
	}
	slices.Sort(list)
	return list
}

// Close closes the directories.
func (e *Exports) Close() {
	for _, d := range e.dirs {
		d.Close()
	}
}

// open opens a served file for reading.
func (e *Exports) open(name string) (*os.File, error) {
	f, err := e.openAny(name)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = refuse(Denied, "%s is not a regular file", name)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (e *Exports) openAny(name string) (f *os.File, err error) {
	const flags = os.O_RDONLY | unix.O_NONBLOCK // opening a pipe must not wait
	dir, rest, below := strings.Cut(name, "/")
	switch {
	case !below && e.files[name] != "":
		f, err = os.OpenFile(e.files[name], flags, 0)
	case below && e.dirs[dir] != nil && fs.ValidPath(rest):
		f, err = e.dirs[dir].OpenFile(rest, flags, 0)
	default:
		return nil, refuse(NotFound, "the server has no file of this name")
	}
	if os.IsNotExist(err) {
		return nil, refuse(NotFound, "the server has no file of this name")
	}
	if err != nil { // the client need not know the server's paths
		return nil, refuse(Denied, "the server cannot open it")
	}
	return f, nil
}

// An upload is a file that a client writes. It outlives connections.
type upload struct {
	name string
	size int64
	dir  *atomicfile.Dir
	file *atomicfile.File

	users int // connections; guarded by the server

	mu        sync.RWMutex // held for reading while a task writes
	committed bool
}

// write writes data of a task, unless the file is published.
func (u *upload) write(p []byte, off int64) error {
	u.mu.RLock()
	defer u.mu.RUnlock()
	if u.committed {
		return refuse(Invalid, "%s is complete", u.name)
	}
	if _, err := u.file.WriteAt(p, off); err != nil {
		return refuse(Storage, "write %s at %d: %v", u.name, off, errors.Unwrap(err))
	}
	return nil
}

// create begins an upload of a file directly in a served directory.
func (e *Exports) create(name string, size uint64) (*upload, error) {
	dir, base, below := strings.Cut(name, "/")
	switch {
	case !below || e.dirs[dir] == nil:
		return nil, refuse(Denied, "files can be written to served directories only (fix: name it DIRECTORY/NAME)")
	case !fs.ValidPath(base) || strings.Contains(base, "/") || base == ".":
		return nil, refuse(Invalid, "the name after the directory must be a plain file name")
	case size > 1<<62:
		return nil, refuse(Invalid, "size %d is too large", size)
	}
	d, err := atomicfile.OpenDir(e.dirs[dir].Name())
	if err != nil {
		return nil, refuse(Storage, "the server cannot open the directory")
	}
	f, err := atomicfile.CreateIn(d, base, atomicfile.Options{Mode: 0o666})
	if err != nil {
		d.Close()
		return nil, refuse(Denied, "the server cannot create a file there")
	}
	// What is not written yet reads as zeros.
	if err := f.Truncate(int64(size)); err != nil {
		f.Discard()
		d.Close()
		return nil, refuse(Storage, "the server cannot make a file of %d bytes: %v", size, errors.Unwrap(err))
	}
	return &upload{name: name, size: int64(size), dir: d, file: f}, nil
}

// commit publishes the file. To repeat it is no error.
func (u *upload) commit() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.committed {
		return nil
	}
	if err := u.file.Truncate(u.size); err != nil {
		return err
	}
	if err := u.file.Sync(); err != nil {
		return err
	}
	if err := u.file.Commit(); err != nil {
		return err
	}
	u.committed = true
	return nil
}

func (u *upload) discard() {
	u.file.Discard()
	u.dir.Close()
}

// tagOf identifies the contents of a file, as far as its inode tells.
func tagOf(f *os.File) (tag, size uint64, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0, 0, err
	}
	h := fnv.New64a()
	fmt.Fprintln(h, st.Dev, st.Ino, st.Size, st.Mtim.Nano())
	return h.Sum64(), uint64(st.Size), nil
}
