package transfer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/internal/object"
)

// An ObjectTree is a plan to copy the objects below a URL, into a directory, or into
// GPU memory and no further; or the files of a directory to a store.
type ObjectTree struct {
	Source    string       `json:"source"`
	Dest      string       `json:"destination"`
	Files     []ObjectFile `json:"files"`
	Skipped   []TreeSkip   `json:"skipped"`
	Unchanged int          `json:"unchanged,omitempty"`

	url string // of the store, with its query
	to  objectDest
}

// An objectDest is where an ObjectTree goes.
type objectDest int

const (
	toDir objectDest = iota
	toGPU
	toStore
)

// An ObjectFile is an object to copy, or a file that becomes one.
type ObjectFile struct {
	TreeFile
	info object.Info
}

// PlanObjects plans a copy of the objects below a URL into the directory dst, or with
// intoGPU into the GPU of that name.
func PlanObjects(ctx context.Context, url, dst string, intoGPU bool, o PlanOptions) (*ObjectTree, error) {
	list, err := object.ListAll(ctx, url)
	if err != nil {
		return nil, err
	}
	t := &ObjectTree{Source: object.Redact(url), Dest: dst, url: url}
	if intoGPU {
		t.to = toGPU
	}
	for _, info := range list {
		t.add(info, &o)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("there are no objects below %s", t.Source)
	}
	return t, nil
}

// add plans one object, unless the options leave it out.
func (t *ObjectTree) add(info object.Info, o *PlanOptions) {
	rel := info.Name
	if info.Size == 0 && (rel == "" || strings.HasSuffix(rel, "/")) {
		return // some tools make an empty object for a directory
	}
	if why := unusable(rel); why != "" {
		t.Skipped = append(t.Skipped, TreeSkip{rel, why})
		return
	}
	if o.excludesBelow(rel) || !o.includes(rel) {
		return
	}
	f := ObjectFile{TreeFile: TreeFile{Path: rel, Size: info.Size, ModTime: info.Modified}, info: info}
	if t.to == toDir {
		st, err := os.Lstat(filepath.Join(t.Dest, rel))
		f.Replace = err == nil
		if o.Update && err == nil && st.Mode().IsRegular() && st.Size() == info.Size && st.ModTime().Equal(info.Modified) {
			t.Unchanged++
			return
		}
	}
	t.Files = append(t.Files, f)
}

// PlanUploads plans a copy of the files of a directory to the objects below a URL. With
// PlanOptions.Update it leaves out what the store has with the same size and not older.
func PlanUploads(ctx context.Context, src, url string, o PlanOptions) (*ObjectTree, error) {
	files, err := planSource(ctx, src, o)
	if err != nil {
		return nil, err
	}
	there := map[string]object.Info{}
	if o.Update {
		list, err := object.ListAll(ctx, url)
		if err != nil {
			return nil, err
		}
		for _, info := range list {
			there[info.Name] = info
		}
	}
	t := &ObjectTree{Source: src, Dest: object.Redact(url), Skipped: files.Skipped, url: url, to: toStore}
	for _, l := range files.Links {
		t.Skipped = append(t.Skipped, TreeSkip{l.Path, "symbolic link: a store has none (fix: --follow)"})
	}
	for _, f := range files.Files {
		if info, ok := there[f.Path]; ok && info.Size == f.Size && !info.Modified.Before(f.ModTime) {
			t.Unchanged++
			continue
		}
		t.Files = append(t.Files, ObjectFile{TreeFile: f})
	}
	return t, nil
}

// planSource is the plan to copy a directory to one that does not exist.
func planSource(ctx context.Context, src string, o PlanOptions) (*Tree, error) {
	t := &Tree{Source: src, opts: o}
	w := &walker{ctx: ctx, tree: t, seen: map[[2]uint64]string{}}
	var err error
	if w.src, err = t.openSource(); err != nil {
		return nil, err
	}
	defer w.src.Close()
	err = w.dir(".", nil)
	return t, errors.Join(append(t.errs, err)...)
}

// unusable says why a key is not the path of a file below a directory; "" if it is.
func unusable(rel string) string {
	switch {
	case strings.HasSuffix(rel, "/"):
		return "its name ends with a slash"
	case strings.ContainsRune(rel, 0), !filepath.IsLocal(rel), path.Clean(rel) != rel:
		return "its name is not that of a file"
	}
	return ""
}

// Totals returns the files and bytes of the plan.
func (t *ObjectTree) Totals() (files, doneFiles int, bytes, doneBytes int64) {
	for i := range t.Files {
		bytes += t.Files[i].Size
	}
	return len(t.Files), 0, bytes, 0
}

// String prints the plan, one line per object.
func (t *ObjectTree) String() string {
	var b strings.Builder
	for i := range t.Files {
		b.WriteString(t.Files[i].line())
	}
	for _, s := range t.Skipped {
		fmt.Fprintf(&b, "skip     %s: %s\n", human.Name(s.Path), s.Why)
	}
	files, _, bytes, _ := t.Totals()
	fmt.Fprintf(&b, "%s -> %s: %d files, %s\n", human.Name(t.Source), human.Name(t.Dest), files, human.Size(bytes))
	return b.String()
}
