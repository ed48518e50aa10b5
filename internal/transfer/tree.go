package transfer

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/culvert-io/culvert/internal/human"
)

// A Tree is the plan of copying a directory.
type Tree struct {
	Source  string     `json:"source"`
	Dest    string     `json:"destination"`
	Dirs    []TreeDir  `json:"directories"` // to create, parents first
	Files   []TreeFile `json:"files"`       // by path
	Links   []TreeLink `json:"links"`
	Skipped []TreeSkip `json:"skipped"`

	source string    // absolute, for the journal
	finish []TreeDir // get their modes at the end: created by this copy, or before it was resumed
}

// A TreeDir is a directory to create. The root's path is ".".
type TreeDir struct {
	Path string      `json:"path"`
	Mode fs.FileMode `json:"-"`
}

// A TreeFile is a file to copy, or one that is already complete.
type TreeFile struct {
	Path    string      `json:"path"` // below the source
	Size    int64       `json:"bytes"`
	Mode    fs.FileMode `json:"-"`
	ModTime time.Time   `json:"modified"`
	Replace bool        `json:"replace"` // the destination has such a file
	Done    bool        `json:"done"`    // by the journal
}

// A TreeLink is a symbolic link to copy.
type TreeLink struct {
	Path   string `json:"path"`
	Target string `json:"target"`
}

// A TreeSkip is not copied.
type TreeSkip struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// PlanTree plans a copy of the contents of the directory src into dst. With follow,
// symbolic links are followed. If an earlier copy was stopped, the plan resumes it.
func PlanTree(src, dst string, follow bool) (*Tree, error) {
	t := &Tree{Source: src, Dest: dst, Dirs: []TreeDir{}, Files: []TreeFile{}, Links: []TreeLink{}, Skipped: []TreeSkip{}}
	if err := t.check(); err != nil {
		return nil, err
	}
	j, err := readJournal(dst, t.source)
	if err != nil {
		return nil, err
	}
	w := &walker{tree: t, journal: j, follow: follow}
	if err := w.dir(".", nil); err != nil {
		return nil, err
	}
	return t, nil
}

// check rejects a destination that is the source or inside it.
func (t *Tree) check() error {
	src, err := filepath.Abs(t.Source)
	if err == nil {
		src, err = filepath.EvalSymlinks(src)
	}
	if err != nil {
		return err
	}
	t.source = src
	if _, err := os.Lstat(filepath.Join(src, JournalName)); err == nil {
		return fmt.Errorf("%s is an unfinished copy (fix: finish it, or remove %s there)", t.Source, JournalName)
	}
	dst, err := realPath(t.Dest)
	if err != nil {
		return err
	}
	if dst == src || strings.HasPrefix(dst, strings.TrimSuffix(src, "/")+"/") {
		return fmt.Errorf("%s is inside %s: a directory cannot be copied into itself", t.Dest, t.Source)
	}
	st, err := os.Stat(t.Dest)
	if err == nil && !st.IsDir() {
		return fmt.Errorf("%s is a file, and %s is a directory", t.Dest, t.Source)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// realPath resolves as much of a path as exists.
func realPath(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	rest := ""
	for {
		real, err := filepath.EvalSymlinks(path)
		if err == nil {
			return filepath.Join(real, rest), nil
		}
		if !errors.Is(err, os.ErrNotExist) || path == "/" {
			return "", err
		}
		path, rest = filepath.Dir(path), filepath.Join(filepath.Base(path), rest)
	}
}

// A walker fills a tree.
type walker struct {
	tree    *Tree
	journal *journal
	follow  bool
}

// dir adds a directory. above are its parents, to detect a link to one of them.
func (w *walker) dir(rel string, above []fs.FileInfo) error {
	path := filepath.Join(w.tree.Source, rel)
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !st.IsDir() {
		return fmt.Errorf("%s: not a directory", path)
	}
	if slices.ContainsFunc(above, func(a fs.FileInfo) bool { return os.SameFile(a, st) }) {
		return fmt.Errorf("%s: symbolic link loop (fix: run without --follow)", path)
	}
	if err := w.needDir(rel, st.Mode().Perm()); err != nil {
		return err
	}
	list, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	above = append(above[:len(above):len(above)], st)
	for _, e := range list {
		if err := w.entry(filepath.Join(rel, e.Name()), above); err != nil {
			return err
		}
	}
	return nil
}

// needDir adds a directory that the destination does not have.
func (w *walker) needDir(rel string, mode fs.FileMode) error {
	path := filepath.Join(w.tree.Dest, rel)
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		w.tree.Dirs = append(w.tree.Dirs, TreeDir{rel, mode})
		w.tree.finish = append(w.tree.finish, TreeDir{rel, mode})
		return nil
	case err != nil:
		return err
	case !st.IsDir():
		return fmt.Errorf("%s is a file, and %s is a directory", path, filepath.Join(w.tree.Source, rel))
	}
	if w.journal != nil && w.journal.made[rel] {
		w.tree.finish = append(w.tree.finish, TreeDir{rel, mode})
	}
	return nil
}

func (w *walker) entry(rel string, above []fs.FileInfo) error {
	path := filepath.Join(w.tree.Source, rel)
	look := os.Lstat
	if w.follow {
		look = os.Stat
	}
	st, err := look(path)
	if w.follow && errors.Is(err, os.ErrNotExist) {
		err = dangling(path, err)
	}
	if err != nil {
		return err
	}
	switch {
	case st.IsDir():
		return w.dir(rel, above)
	case st.Mode().IsRegular():
		return w.file(rel, st)
	case st.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(path)
		w.tree.Links = append(w.tree.Links, TreeLink{rel, target})
		return err
	}
	w.tree.Skipped = append(w.tree.Skipped, TreeSkip{rel, "not a file, directory or symbolic link"})
	return nil
}

// dangling returns the error of a link without a target.
func dangling(path string, err error) error {
	if target, lerr := os.Readlink(path); lerr == nil {
		return fmt.Errorf("%s: target %s: %w (fix: remove the link, or run without --follow)", path, target, os.ErrNotExist)
	}
	return err
}

func (w *walker) file(rel string, st fs.FileInfo) error {
	f := TreeFile{Path: rel, Size: st.Size(), Mode: st.Mode().Perm(), ModTime: st.ModTime()}
	there, err := os.Lstat(filepath.Join(w.tree.Dest, rel))
	switch {
	case err == nil && there.IsDir():
		return fmt.Errorf("%s is a directory, and %s is a file", filepath.Join(w.tree.Dest, rel), filepath.Join(w.tree.Source, rel))
	case err == nil:
		f.Replace = true
	case !errors.Is(err, os.ErrNotExist):
		return err
	}
	f.Done = w.journal.has(&f, w.tree.Dest)
	w.tree.Files = append(w.tree.Files, f)
	return nil
}

func nameHash(path string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(path))
	return h.Sum64()
}

// Totals returns the files and bytes of the tree, and how many of them are done.
func (t *Tree) Totals() (files, doneFiles int, bytes, doneBytes int64) {
	for i := range t.Files {
		f := &t.Files[i]
		files++
		bytes += f.Size
		if f.Done {
			doneFiles++
			doneBytes += f.Size
		}
	}
	return files, doneFiles, bytes, doneBytes
}

// String prints the plan, one line per step.
func (t *Tree) String() string {
	var b strings.Builder
	for _, d := range t.Dirs {
		fmt.Fprintf(&b, "mkdir    %s\n", human.Name(d.Path))
	}
	for i := range t.Files {
		f := &t.Files[i]
		verb := "copy"
		switch {
		case f.Done:
			verb = "done"
		case f.Replace:
			verb = "replace"
		}
		fmt.Fprintf(&b, "%-8s %s %s\n", verb, human.Name(f.Path), human.Size(f.Size))
	}
	for _, l := range t.Links {
		fmt.Fprintf(&b, "link     %s -> %s\n", human.Name(l.Path), human.Name(l.Target))
	}
	for _, s := range t.Skipped {
		fmt.Fprintf(&b, "skip     %s: %s\n", human.Name(s.Path), s.Why)
	}
	files, done, bytes, doneBytes := t.Totals()
	fmt.Fprintf(&b, "%s -> %s: %d of %d files, %s of %s\n", t.Source, t.Dest, files-done, files, human.Size(bytes-doneBytes), human.Size(bytes))
	return b.String()
}
