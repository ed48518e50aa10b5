package transfer

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/atomicfile"
	"github.com/culvert-io/culvert/internal/human"
)

// A Tree is the plan of copying a directory.
type Tree struct {
	Source  string     `json:"source"`
	Dest    string     `json:"destination"`
	Dirs    []TreeDir  `json:"directories"` // to create, parents first
	Files   []TreeFile `json:"files"`       // by path
	Links   []TreeLink `json:"links"`
	Hard    []TreeLink `json:"hard_links,omitempty"` // to files of the tree
	Skipped []TreeSkip `json:"skipped"`
	Failed  []TreeSkip `json:"unreadable,omitempty"` // not copied, which is an error
	// Unchanged counts the files that PlanOptions.Update and Checksum leave alone.
	Unchanged int `json:"unchanged,omitempty"`

	source string // absolute, for the journal
	opts   PlanOptions
	all    []TreeDir // of the source, parents first
	errs   []error   // of Failed
}

// PlanOptions say what belongs to a tree.
type PlanOptions struct {
	Follow   bool // follow symbolic links of the source
	Preserve bool // keep hard links; files must have been copied with Options.Preserve
	*Filter       // what of the source belongs to it; nil means everything
	Update   bool // leave files alone whose size and time of modification are those of the source
	Checksum bool // leave files alone whose contents are those of the source, whatever their time
	// Compared is called when bytes have been compared for Checksum, from several
	// goroutines; it may be nil.
	Compared func(done, total int64)
}

// A TreeDir is a directory to create. The root's path is ".".
type TreeDir struct {
	Path string `json:"path"`

	stat unix.Stat_t // of the source
	ours bool        // created by this copy, or before it was resumed
}

// A TreeFile is a file to copy, or one that is already complete.
type TreeFile struct {
	Path    string    `json:"path"` // below the source
	Size    int64     `json:"bytes"`
	ModTime time.Time `json:"modified"`
	Replace bool      `json:"replace"` // the destination has such a file
	Done    bool      `json:"done"`    // by the journal

	compare bool // with the file that it would replace
}

// A TreeLink is a symbolic link to copy.
type TreeLink struct {
	Path   string `json:"path"`
	Target string `json:"target"`

	stat *unix.Stat_t // of the source
}

// A TreeSkip is not copied.
type TreeSkip struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// PlanTree plans a copy of the contents of the directory src into dst. If an earlier
// copy was stopped, the plan resumes it. What cannot be read is in Failed.
func PlanTree(ctx context.Context, src, dst string, o PlanOptions) (*Tree, error) {
	t := &Tree{Source: src, Dest: dst, Dirs: []TreeDir{}, Files: []TreeFile{}, Links: []TreeLink{}, Skipped: []TreeSkip{}, opts: o}
	if err := t.check(); err != nil {
		return nil, err
	}
	w := &walker{ctx: ctx, tree: t, seen: map[[2]uint64]string{}}
	var err error
	if w.src, err = t.openSource(); err != nil {
		return nil, err
	}
	defer w.src.Close()
	w.dst, err = atomicfile.OpenDir(dst)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if err == nil {
		defer w.dst.Close()
		if w.journal, err = readJournal(w.dst, t.source); err != nil {
			return nil, err
		}
	}
	if err := w.dir(".", nil); err != nil {
		return nil, err
	}
	return t, w.leaveSame()
}

func (t *Tree) openSource() (*atomicfile.Dir, error) {
	d, err := atomicfile.OpenDir(t.Source)
	if err == nil && t.opts.Follow {
		d.Follow()
	}
	return d, err
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
	ctx     context.Context
	tree    *Tree
	src     *atomicfile.Dir
	dst     *atomicfile.Dir // nil if there is none
	journal *journal
	seen    map[[2]uint64]string // files with several names, by device and inode
}

// lookup describes what the destination has under a name; nil if nothing.
func (w *walker) lookup(rel string) (*unix.Stat_t, error) {
	if w.dst == nil {
		return nil, nil
	}
	st, err := w.dst.Stat(rel)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return st, err
}

// failed records what cannot be read, or looked up in the destination. The rest is
// copied.
func (w *walker) failed(rel string, err error) error {
	if rel == "." || w.ctx.Err() != nil {
		return err
	}
	why := err
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		why = pe.Err
	}
	w.tree.Failed = append(w.tree.Failed, TreeSkip{rel, why.Error()})
	w.tree.errs = append(w.tree.errs, err)
	return nil
}

// dir adds a directory. above are its parents, to detect a link to one of them.
func (w *walker) dir(rel string, above []*unix.Stat_t) error {
	st, err := w.src.Stat(rel)
	if err != nil {
		return w.failed(rel, err)
	}
	if slices.ContainsFunc(above, func(a *unix.Stat_t) bool { return sameFile(a, st) }) {
		return fmt.Errorf("%s: symbolic link loop (fix: run without --follow)", w.src.Path(rel))
	}
	list, err := w.list(rel)
	if err != nil {
		return w.failed(rel, err)
	}
	if err := w.needDir(rel, st); err != nil {
		return err
	}
	above = append(above[:len(above):len(above)], st)
	for i := range list {
		if err := w.entry(filepath.Join(rel, list[i].name), &list[i], above); err != nil {
			return err
		}
	}
	return nil
}

// An entry is a name in a directory of the source.
type entry struct {
	name string
	stat *unix.Stat_t
	err  error // of stat
}

// list describes all entries of a directory, which is closed again before those below are
// opened: a path may have more elements than a process descriptors.
func (w *walker) list(rel string) ([]entry, error) {
	dir, err := w.src.Open(rel)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Names(".")
	if err != nil {
		return nil, err
	}
	list := make([]entry, len(names))
	for i, name := range names {
		st, err := dir.Stat(name)
		list[i] = entry{name, st, err}
	}
	return list, nil
}

// needDir adds a directory, which the destination may have.
func (w *walker) needDir(rel string, st *unix.Stat_t) error {
	there, err := w.lookup(rel)
	if err != nil {
		return w.failed(rel, err)
	}
	d := TreeDir{Path: rel, stat: *st, ours: there == nil || w.journal != nil && w.journal.made[rel]}
	w.tree.all = append(w.tree.all, d)
	switch {
	case there == nil:
		w.tree.Dirs = append(w.tree.Dirs, d)
	case there.Mode&unix.S_IFMT == unix.S_IFLNK:
		return fmt.Errorf("%s is a symbolic link, which is not followed, and %s is a directory (fix: remove the link)", w.dst.Path(rel), w.src.Path(rel))
	case there.Mode&unix.S_IFMT != unix.S_IFDIR:
		return fmt.Errorf("%s is a file, and %s is a directory", w.dst.Path(rel), w.src.Path(rel))
	}
	return nil
}

func (w *walker) entry(rel string, e *entry, above []*unix.Stat_t) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	if atomicfile.Temporary(e.name) || atomicfile.IsPart(e.name) {
		w.tree.Skipped = append(w.tree.Skipped, TreeSkip{rel, "the name of a temporary file of culvert"})
		return nil
	}
	if w.tree.opts.excludes(rel, false) {
		return nil
	}
	st, err := e.stat, e.err
	if w.tree.opts.Follow && errors.Is(err, os.ErrNotExist) {
		return dangling(w.src.Path(rel), err)
	}
	if err != nil {
		return w.failed(rel, err)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		if w.tree.opts.excludes(rel, true) {
			return nil
		}
		return w.dir(rel, above)
	case unix.S_IFREG:
		if !w.tree.opts.includes(rel) {
			return nil
		}
		return w.file(rel, st)
	case unix.S_IFLNK:
		target, err := w.src.Readlink(rel)
		if err != nil {
			return w.failed(rel, err)
		}
		if w.hasLink(rel, target) {
			w.tree.Unchanged++
			return nil
		}
		w.tree.Links = append(w.tree.Links, TreeLink{rel, target, st})
		return nil
	}
	w.tree.Skipped = append(w.tree.Skipped, TreeSkip{rel, "not a file, directory or symbolic link"})
	return nil
}

// hasLink reports whether Update or Checksum leaves a symbolic link alone: the destination
// has the same one.
func (w *walker) hasLink(rel, target string) bool {
	o := &w.tree.opts
	if w.dst == nil || o.Preserve || !o.Update && !o.Checksum {
		return false
	}
	there, err := w.dst.Readlink(rel)
	return err == nil && there == target
}

// dangling returns the error of a link without a target.
func dangling(path string, err error) error {
	if target, lerr := os.Readlink(path); lerr == nil {
		return fmt.Errorf("%s: target %s: %w (fix: remove the link, or run without --follow)", path, target, os.ErrNotExist)
	}
	return err
}

func (w *walker) file(rel string, st *unix.Stat_t) error {
	f := TreeFile{Path: rel, Size: st.Size, ModTime: time.Unix(st.Mtim.Unix())}
	there, err := w.lookup(rel)
	switch {
	case err != nil:
		return w.failed(rel, err)
	case there != nil && there.Mode&unix.S_IFMT == unix.S_IFDIR:
		return fmt.Errorf("%s is a directory, and %s is a file", w.dst.Path(rel), w.src.Path(rel))
	case there != nil:
		if o := &w.tree.opts; o.Update && !o.Checksum && o.unchanged(st, there) {
			w.tree.Unchanged++
			return nil
		}
		f.Replace, f.compare = true, w.tree.opts.comparable(st, there)
		f.Done = w.journal.has(rel, st, there, w.tree.opts.Preserve)
	}
	if w.tree.opts.Preserve && st.Nlink > 1 {
		id := [2]uint64{st.Dev, st.Ino}
		if first, ok := w.seen[id]; ok {
			w.tree.Hard = append(w.tree.Hard, TreeLink{rel, first, st})
			return nil
		}
		w.seen[id] = rel
	}
	w.tree.Files = append(w.tree.Files, f)
	return nil
}

// unchanged reports whether a file has the size and time of its source. With Preserve,
// names of one file are compared by the copy, which keeps them together.
func (o *PlanOptions) unchanged(src, dst *unix.Stat_t) bool {
	if o.Preserve && (src.Nlink > 1 || !sameAttributes(src, dst)) {
		return false
	}
	return dst.Mode&unix.S_IFMT == unix.S_IFREG && src.Size == dst.Size && src.Mtim == dst.Mtim
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

// line is the file in a printed plan.
func (f *TreeFile) line() string {
	verb := "copy"
	switch {
	case f.Done:
		verb = "done"
	case f.Replace:
		verb = "replace"
	}
	return fmt.Sprintf("%-8s %s %s\n", verb, human.Name(f.Path), human.Size(f.Size))
}

// String prints the plan, one line per step.
func (t *Tree) String() string {
	var b strings.Builder
	for _, d := range t.Dirs {
		fmt.Fprintf(&b, "mkdir    %s\n", human.Name(d.Path))
	}
	for i := range t.Files {
		b.WriteString(t.Files[i].line())
	}
	for _, l := range t.Links {
		fmt.Fprintf(&b, "link     %s -> %s\n", human.Name(l.Path), human.Name(l.Target))
	}
	for _, l := range t.Hard {
		fmt.Fprintf(&b, "hardlink %s = %s\n", human.Name(l.Path), human.Name(l.Target))
	}
	for _, s := range t.Failed {
		fmt.Fprintf(&b, "error    %s: %s\n", human.Name(s.Path), s.Why)
	}
	for _, s := range t.Skipped {
		fmt.Fprintf(&b, "skip     %s: %s\n", human.Name(s.Path), s.Why)
	}
	if t.Unchanged > 0 {
		fmt.Fprintf(&b, "same     %d unchanged files\n", t.Unchanged)
	}
	files, done, bytes, doneBytes := t.Totals()
	fmt.Fprintf(&b, "%s -> %s: %d of %d files, %s of %s\n", human.Name(t.Source), human.Name(t.Dest), files-done, files, human.Size(bytes-doneBytes), human.Size(bytes))
	return b.String()
}
