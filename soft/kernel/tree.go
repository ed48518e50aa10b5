package kernel

import (
	"bytes"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
)

// A Tree is a file system whose files are made when they are opened, as in /proc. The
// keys are paths; "." is a file mounted by itself.
type Tree map[string]func() []byte

// Open makes a file, or lists a directory.
func (t Tree) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	if make := t[name]; make != nil {
		return &memFile{info{path.Base(name), 0o444}, bytes.NewReader(make())}, nil
	}
	list := t.list(name)
	if len(list) == 0 && name != "." {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return newDir(name, list), nil
}

// has reports whether there is a file or directory.
func (t Tree) has(name string) bool { return t[name] != nil || len(t.list(name)) > 0 }

func (t Tree) list(dir string) []fs.DirEntry {
	found := map[string]fs.DirEntry{}
	for p := range t {
		rest, ok := strings.CutPrefix(p, dir+"/")
		if dir == "." {
			rest, ok = p, true
		}
		if !ok {
			continue
		}
		i := info{mode: 0o444}
		var more bool
		if i.name, _, more = strings.Cut(rest, "/"); more {
			i.mode = fs.ModeDir | 0o555
		}
		found[i.name] = fs.FileInfoToDirEntry(i)
	}
	return slices.Collect(maps.Values(found))
}

// info describes a generated file. Its size is 0, as in /proc.
type info struct {
	name string
	mode fs.FileMode
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return 0 }
func (i info) Mode() fs.FileMode  { return i.mode }
func (i info) ModTime() time.Time { return time.Time{} }
func (i info) IsDir() bool        { return i.mode.IsDir() }
func (i info) Sys() any           { return nil }

type memFile struct {
	info info
	*bytes.Reader
}

func (f *memFile) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *memFile) Close() error               { return nil }

// memDir is an open directory.
type memDir struct {
	info info
	left []fs.DirEntry
}

func newDir(name string, list []fs.DirEntry) *memDir {
	slices.SortFunc(list, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return &memDir{info{name: path.Base(name), mode: fs.ModeDir | 0o555}, list}
}

func (d *memDir) Stat() (fs.FileInfo, error) { return d.info, nil }
func (d *memDir) Close() error               { return nil }

func (d *memDir) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: d.info.name, Err: fs.ErrInvalid}
}

func (d *memDir) ReadDir(n int) ([]fs.DirEntry, error) {
	if n <= 0 {
		n = len(d.left)
	} else if len(d.left) == 0 {
		return nil, io.EOF
	}
	n = min(n, len(d.left))
	list := d.left[:n]
	d.left = d.left[n:]
	return list, nil
}
