package tensor

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	fileSuffix  = ".safetensors"
	indexSuffix = ".index.json"
)

// A Model is one safetensors file, or several that belong together.
type Model struct {
	Path  string
	Files []*File // by path
	// Unlisted are tensors that lie in a file of a sharded model although its
	// index does not send readers there. They are no part of the model.
	Unlisted []string

	entries []Entry
	byName  map[string]int
}

// An Entry is a tensor of a model.
type Entry struct {
	Info
	File int // in Model.Files
}

// Open reads the headers of a model and checks them. path is a safetensors
// file, an index of shards (*.index.json), or a directory that holds one index,
// or files without one. No tensor is read and no file stays open.
func Open(path string) (*Model, error) {
	st, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case st.IsDir():
		return openDir(path)
	case strings.HasSuffix(path, indexSuffix):
		return openIndex(path)
	default:
		return openFiles(path, []string{path}, nil)
	}
}

// Entries are the tensors by file and offset.
func (m *Model) Entries() []Entry { return m.entries }

// Lookup finds a tensor by its name.
func (m *Model) Lookup(name string) (Entry, bool) {
	i, ok := m.byName[name]
	if !ok {
		return Entry{}, false
	}
	return m.entries[i], true
}

// Bytes is the size of all tensors.
func (m *Model) Bytes() (n int64) {
	for _, e := range m.entries {
		n += e.Len
	}
	return n
}

// openDir finds out what a directory holds. An index decides; without one all
// files together are the model.
func openDir(dir string) (*Model, error) {
	indexes, err := glob(dir, "*"+fileSuffix+indexSuffix)
	if err != nil {
		return nil, err
	}
	switch len(indexes) {
	case 0:
	case 1:
		return openIndex(indexes[0])
	default:
		return nil, fmt.Errorf("%s: %d indexes, name the one to open: %s", dir, len(indexes), strings.Join(indexes, ", "))
	}
	files, err := glob(dir, "*"+fileSuffix)
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s: no *%s in it: %w", dir, fileSuffix, fs.ErrNotExist)
	}
	return openFiles(dir, files, nil)
}

// glob matches names inside dir, which may itself hold characters of patterns.
// Hidden files are temporary ones.
func glob(dir, pattern string) ([]string, error) {
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, e := range list {
		if ok, _ := filepath.Match(pattern, e.Name()); ok && !strings.HasPrefix(e.Name(), ".") {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths, nil
}

// openFiles reads the headers. where says for each tensor which file has it;
// nil means that each tensor is in one file only.
func openFiles(path string, files []string, where map[string]string) (*Model, error) {
	m := &Model{Path: path, byName: make(map[string]int)}
	var errs []error
	for _, p := range files {
		f, err := OpenFile(p)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		m.Files = append(m.Files, f)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	slices.SortFunc(m.Files, func(a, b *File) int { return cmp.Compare(a.Path, b.Path) })
	for i, f := range m.Files {
		if err := m.add(i, f, where); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *Model) add(i int, f *File, where map[string]string) error {
	for _, info := range f.Tensors {
		if where != nil && where[info.Name] != f.Path {
			m.Unlisted = append(m.Unlisted, info.Name)
			continue
		}
		if j, ok := m.byName[info.Name]; ok {
			return &FormatError{f.Path, info.Name, RuleDuplicate, "the name is also in " + m.Files[m.entries[j].File].Path}
		}
		m.byName[info.Name] = len(m.entries)
		m.entries = append(m.entries, Entry{info, i})
	}
	return nil
}
