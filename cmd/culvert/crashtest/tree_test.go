package crashtest

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A node is what a tree has at a path.
type node struct {
	kind  fs.FileMode // type bits
	data  string      // of a file, or target of a link
	perm  fs.FileMode
	mtime int64 // of a file, ns
	holes bool  // most of the file is holes
}

// A tree is a directory by the paths below it.
type tree map[string]node

// names are names that programs stumble over. Some are those of temporary files.
var names = []string{
	"a", "b c", "-rf", "new\nline", "\x1b[31mred", "\xff\xfe", ".hidden", "~", "*", "$(id)", "..x", strings.Repeat("n", 255),
	".x.culvert-tmp", ".culvert-cp.journal.old", ".lock-0.culvert-tmp", "ünïcödé", "latest", "%s%n", ".culvert-abcd1234-0123456789abcdef",
}

// A grower makes and changes random trees.
type grower struct {
	rng *rand.Rand
	dir string
	out string // a path outside, for links
}

func newGrower(seed uint64, dir, outside string) *grower {
	return &grower{rand.New(rand.NewPCG(seed, 1)), dir, outside}
}

// grow makes a random tree with about n entries. Every kind of entry is in it.
func (g *grower) grow(n int) error {
	if err := os.MkdirAll(g.dir, 0o700); err != nil {
		return err
	}
	dirs := []string{g.dir}
	for i := range n {
		dir := dirs[g.rng.IntN(len(dirs))]
		path := filepath.Join(dir, names[g.rng.IntN(len(names))])
		kind := i
		if i >= kinds {
			kind = g.rng.IntN(kinds)
		}
		if err := g.make(kind, path); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if st, err := os.Lstat(path); err == nil && st.IsDir() {
			dirs = append(dirs, path)
		}
	}
	return nil
}

// The kinds of entries.
const (
	directory = iota
	file
	sparse
	link
	fifo
	hardLink
	kinds
)

func (g *grower) make(kind int, path string) error {
	if _, err := os.Lstat(path); err == nil {
		return nil
	}
	switch kind {
	case directory:
		return os.Mkdir(path, []fs.FileMode{0o700, 0o755, 0o500}[g.rng.IntN(2)])
	case file:
		return os.WriteFile(path, g.bytes([]int{0, 1, 511, 4096, 4097, 70_000}[g.rng.IntN(6)]), 0o600)
	case sparse:
		return g.sparse(path)
	case link:
		return os.Symlink([]string{"a", "nowhere", "..", g.out, ".", "b c"}[g.rng.IntN(6)], path)
	case fifo:
		return unix.Mkfifo(path, 0o600)
	}
	other := filepath.Join(filepath.Dir(path), names[g.rng.IntN(len(names))])
	if st, err := os.Lstat(other); err != nil || !st.Mode().IsRegular() {
		return nil
	}
	return os.Link(other, path)
}

func (g *grower) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(g.rng.Uint32()) | 1 // no zeros: they could be holes
	}
	return b
}

// sparse makes a file of 1 MiB with two blocks of data.
func (g *grower) sparse(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, werr := f.WriteAt(g.bytes(4096), 256<<10)
	_, zerr := f.WriteAt(g.bytes(100), 700_001)
	return errors.Join(werr, zerr, f.Truncate(1<<20), f.Close())
}

// change does one random thing to the tree.
func (g *grower) change() error {
	var paths []string
	_ = filepath.WalkDir(g.dir, func(path string, _ fs.DirEntry, err error) error {
		if err == nil && path != g.dir {
			paths = append(paths, path)
		}
		return nil
	})
	if len(paths) == 0 {
		return g.make(file, filepath.Join(g.dir, "a"))
	}
	path := paths[g.rng.IntN(len(paths))]
	st, err := os.Lstat(path)
	if err != nil {
		return err
	}
	switch what := g.rng.IntN(5); {
	case what == 0 && st.Mode().IsRegular():
		return os.Truncate(path, st.Size()/2)
	case what == 1 && st.Mode().IsRegular():
		return os.WriteFile(path, g.bytes(5000), 0o600)
	case what == 2:
		return os.Rename(path, filepath.Join(g.dir, "renamed"))
	case what == 3:
		return os.RemoveAll(path)
	}
	// Something else takes its place, the way to lead a copy elsewhere.
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	return g.make([]int{link, directory, fifo, file}[g.rng.IntN(4)], path)
}

// readTree reads a directory; one that does not exist has nothing in it.
func readTree(dir string) (tree, error) {
	t := tree{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			if errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		t[rel], err = readNode(path, d)
		return err
	})
	return t, err
}

func readNode(path string, d fs.DirEntry) (node, error) {
	st, err := d.Info()
	if err != nil {
		return node{}, err
	}
	n := node{kind: st.Mode().Type(), perm: st.Mode().Perm()}
	switch {
	case st.Mode().IsRegular():
		data, err := os.ReadFile(path)
		n.data, n.mtime = string(data), st.ModTime().UnixNano()
		var s unix.Stat_t
		if err == nil {
			err = unix.Lstat(path, &s)
		}
		n.holes = s.Blocks*512 < s.Size/2
		return n, err
	case n.kind == fs.ModeSymlink:
		n.data, err = os.Readlink(path)
		n.perm = 0
	}
	return n, err
}

// same reports whether two nodes have the same contents.
func (n node) same(o node) bool { return n.kind == o.kind && n.data == o.data }

func (n node) String() string {
	return fmt.Sprintf("%v %d bytes %.20q", n.kind, len(n.data), n.data)
}

// temporary reports whether a name is one that culvert may leave when it is killed.
func temporary(name string) bool {
	base := filepath.Base(name)
	return reserved(base) || base == ".culvert-cp.journal" || strings.HasPrefix(base, ".culvert-") && !slices.Contains(names, base)
}

// reserved reports whether a path has the name of a temporary file, which is not
// copied.
func reserved(path string) bool {
	return slices.ContainsFunc(strings.Split(path, "/"), func(name string) bool {
		return strings.HasPrefix(name, ".") && strings.HasSuffix(name, ".culvert-tmp")
	})
}

// unchanged returns an error if a directory is not what it was.
func (t tree) unchanged(dir string) error {
	now, err := readTree(dir)
	if err != nil {
		return err
	}
	for path, was := range t {
		if is, ok := now[path]; !ok || is != was {
			return fmt.Errorf("%q was %v and is %v", filepath.Join(dir, path), was, is)
		}
	}
	for path := range now {
		if _, ok := t[path]; !ok {
			return fmt.Errorf("%q is new", filepath.Join(dir, path))
		}
	}
	return nil
}

// private returns an error if other users may read something in the tree.
func (t tree) private() error {
	for path, n := range t {
		if n.kind.IsRegular() && n.perm&0o077 != 0 {
			return fmt.Errorf("%q has mode %v: other users may use it", path, n.perm)
		}
	}
	return nil
}

// partial checks a copy that was killed: every file is the old one, or the new one.
func partial(source, before, now tree) error {
	for path, is := range now {
		old, had := before[path]
		want, wanted := source[path]
		switch {
		case had && is.same(old), wanted && is.same(want), temporary(path) && !had && !wanted:
		default:
			return fmt.Errorf("%q is %v, was %v, and is to become %v", path, is, old, want)
		}
	}
	for path, old := range before {
		if _, ok := now[path]; !ok {
			return fmt.Errorf("%q is gone, was %v", path, old)
		}
	}
	return now.private()
}

// complete checks a copy that has ended: it has what the source has but for FIFOs, and
// what there was before and the source does not have.
func complete(source, before, now tree) error {
	for path, want := range source {
		is, ok := now[path]
		switch {
		case reserved(path):
			if ok {
				return fmt.Errorf("%q: a temporary file was copied", path)
			}
		case want.kind == fs.ModeNamedPipe:
			if _, had := before[path]; ok && !had {
				return fmt.Errorf("%q: a FIFO was copied", path)
			}
		case !ok:
			return fmt.Errorf("%q is missing", path)
		case !is.same(want):
			return fmt.Errorf("%q is %v, want %v", path, is, want)
		case want.kind.IsRegular() && is.mtime != want.mtime:
			return fmt.Errorf("%q has another time", path)
		case want.holes && !is.holes:
			return fmt.Errorf("%q has lost its holes", path)
		}
	}
	for path, is := range now {
		old, had := before[path]
		if _, wanted := source[path]; !wanted && (!had || !is.same(old)) {
			return fmt.Errorf("%q does not belong to the copy: %v", path, is)
		}
	}
	return now.private()
}

// writeFiles writes files of the given contents, below dir.
func (w *world) writeFiles(files map[string][]byte) error {
	for name, data := range files {
		path := w.path(name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, data, 0o600)); err != nil {
			return err
		}
	}
	return nil
}

// only returns an error unless a directory has exactly these names.
func (w *world) only(dir string, names ...string) error {
	list, err := os.ReadDir(w.path(dir))
	if err != nil {
		return err
	}
	want := map[string]bool{}
	for _, n := range names {
		want[n] = true
	}
	for _, e := range list {
		if !want[e.Name()] {
			return fmt.Errorf("%q was left in %s", e.Name(), dir)
		}
		delete(want, e.Name())
	}
	for n := range want {
		return fmt.Errorf("%q is missing in %s", n, dir)
	}
	return nil
}

// oneOf returns an error unless a file has one of the contents. nil allows that there
// is none.
func (w *world) oneOf(name string, contents ...[]byte) error {
	got, err := os.ReadFile(w.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		got, err = nil, nil
	}
	if err != nil {
		return err
	}
	for _, c := range contents {
		if bytes.Equal(c, got) && (c == nil) == (got == nil) {
			return nil
		}
	}
	return fmt.Errorf("%s has %d bytes that are neither the old nor the new ones", name, len(got))
}
