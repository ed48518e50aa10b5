package tensor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/culvert-io/culvert/internal/object"
)

const (
	fileSuffix  = ".safetensors"
	indexSuffix = ".index.json"
)

// A Model is one safetensors file, or several that belong together.
type Model struct {
	Path    string
	Files   []*File // by path
	Tensors []Info  // by file and offset
	// Unlisted are tensors in a file of a sharded model that the index does not
	// list there. They are not part of the model.
	Unlisted []string

	byName map[string]int
}

// Open reads and checks the headers of a model. path is a safetensors file, an
// index of shards (*.index.json), or a directory with one index, or with files
// and no index. Open reads no tensor and leaves no file open.
//
// path may also be the URL of an object, or of objects with a common prefix, if the
// program imports package object. A web server cannot list: of a URL that ends with a
// slash, the index or the file with the name that model hubs use is opened. Of
// [Checkpoints] in a store, s3://BUCKET/PREFIX/latest is the step that was saved last.
func Open(path string) (*Model, error) {
	m, err := open(path)
	if errors.Is(err, fs.ErrNotExist) {
		if latest := latestOf(path); latest != "" {
			return open(latest)
		}
		if cause := context.Cause(object.Context()); cause != nil && object.IsURL(path) {
			return nil, cause // what was not found may be there
		}
	}
	return m, err
}

func open(path string) (*Model, error) {
	dir, err := isStoredDir(path)
	switch {
	case err != nil:
		return nil, err
	case dir:
		return openDir(path)
	case strings.HasSuffix(storedName(path), indexSuffix):
		return openIndex(path)
	default:
		return openFiles(path, []string{path}, nil)
	}
}

// Lookup returns the tensor of this name.
func (m *Model) Lookup(name string) (Info, bool) {
	i, ok := m.byName[name]
	if !ok {
		return Info{}, false
	}
	return m.Tensors[i], true
}

// Metadata returns that of all files together. It is nil if no file has any.
func (m *Model) Metadata() map[string]string {
	var all map[string]string
	for _, f := range m.Files {
		if all == nil && f.Metadata != nil {
			all = make(map[string]string)
		}
		maps.Copy(all, f.Metadata)
	}
	return all
}

// openDir opens the index of a directory, or all its files if it has none.
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
		return nil, fmt.Errorf("%s: %d indexes, name the one to open: %s", object.Redact(dir), len(indexes), strings.Join(redacted(indexes), ", "))
	}
	files, err := glob(dir, "*"+fileSuffix)
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		below, _ := glob(dir, "*/") // it could be listed just now
		return nil, &noModelError{object.Redact(dir), redacted(below)}
	}
	return openFiles(dir, files, nil)
}

// redacted returns paths without the secrets of URLs.
func redacted(paths []string) (list []string) {
	for _, p := range paths {
		list = append(list, object.Redact(p))
	}
	return list
}

// glob matches names inside dir, whose own name may contain characters of
// patterns. It leaves out hidden files, which are temporary ones.
func glob(dir, pattern string) ([]string, error) {
	names, err := listStored(dir)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, name := range names {
		if ok, _ := filepath.Match(pattern, name); ok && !strings.HasPrefix(name, ".") {
			paths = append(paths, joinStored(dir, name))
		}
	}
	return paths, nil
}

// openFiles reads the headers. where maps each tensor to the file that has it; nil
// means that each tensor is in one file only.
func openFiles(path string, files []string, where map[string]string) (*Model, error) {
	m := &Model{Path: path, byName: make(map[string]int)}
	var errs []error
	for _, p := range files {
		f, err := openFile(p)
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
			return &FormatError{f.Path, info.Name, ruleDuplicate, "the name is also in " + object.Redact(m.Files[m.Tensors[j].File].Path)}
		}
		info.File = i
		m.byName[info.Name] = len(m.Tensors)
		m.Tensors = append(m.Tensors, info)
	}
	return nil
}

// A noModelError means a directory without a model.
type noModelError struct {
	dir   string
	below []string // the directories in it
}

func (e *noModelError) Error() string {
	text := fmt.Sprintf("open model %s: no *%s in it", e.dir, fileSuffix)
	switch {
	case len(e.below) > maxNamed:
		text += fmt.Sprintf(", but %d directories, such as %s", len(e.below), e.below[0])
	case len(e.below) > 0:
		text += ", but " + strings.Join(e.below, ", ")
	}
	return text
}

// maxNamed is how many directories the error of one without a model names.
const maxNamed = 5

func (e *noModelError) Unwrap() error { return fs.ErrNotExist }
