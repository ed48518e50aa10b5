package kernel

import (
	"cmp"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
)

// An overlay is a file system with others mounted on it.
type overlay struct {
	base   fs.FS
	mu     sync.RWMutex
	mounts map[string]fs.FS // by directory
}

var _ fs.ReadLinkFS = (*overlay)(nil)

func (o *overlay) mount(dir string, fsys fs.FS) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mounts == nil {
		o.mounts = map[string]fs.FS{}
	}
	o.mounts[dir] = fsys
}

// find returns the file system of a name, and the name in it.
func (o *overlay) find(name string) (fs.FS, string) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	for dir := name; dir != "."; dir = path.Dir(dir) {
		if fsys, ok := o.mounts[dir]; ok {
			return fsys, cmp.Or(strings.TrimPrefix(strings.TrimPrefix(name, dir), "/"), ".")
		}
	}
	return o.base, name
}

// below returns the names in a directory under which something is mounted.
func (o *overlay) below(dir string) []string {
	o.mu.RLock()
	defer o.mu.RUnlock()
	names := map[string]bool{}
	for m := range o.mounts {
		rest := m
		if dir != "." {
			if !strings.HasPrefix(m, dir+"/") {
				continue
			}
			rest = m[len(dir)+1:]
		}
		first, _, _ := strings.Cut(rest, "/")
		names[first] = true
	}
	return slices.Sorted(maps.Keys(names))
}

func (o *overlay) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	fsys, in := o.find(name)
	f, err := fsys.Open(in)
	extra := o.below(name)
	switch {
	case err == nil && (len(extra) > 0 || in == "." && name != "." && isDir(f)):
		return merge(f, name, extra)
	case err == nil:
		return f, nil
	case len(extra) > 0:
		return newDir(name, entries(extra)), nil // it has only mount points
	}
	return nil, err
}

// isDir is false for a mounted file, as in /proc.
func isDir(f fs.File) bool {
	_, ok := f.(fs.ReadDirFile)
	return ok
}

// merge lists an open directory with its mount points.
func merge(f fs.File, name string, extra []string) (fs.File, error) {
	defer f.Close()
	d, ok := f.(fs.ReadDirFile)
	if !ok {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: fs.ErrInvalid}
	}
	list, err := d.ReadDir(-1)
	if err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(list, func(e fs.DirEntry) bool { return slices.Contains(extra, e.Name()) })
	return newDir(name, append(list, entries(extra)...)), nil
}

func entries(names []string) []fs.DirEntry {
	var list []fs.DirEntry
	for _, n := range names {
		list = append(list, fs.FileInfoToDirEntry(info{name: n, mode: fs.ModeDir | 0o555}))
	}
	return list
}

func (o *overlay) ReadLink(name string) (string, error) {
	fsys, in := o.find(name)
	return fs.ReadLink(fsys, in)
}

func (o *overlay) Lstat(name string) (fs.FileInfo, error) {
	fsys, in := o.find(name)
	fi, err := fs.Lstat(fsys, in)
	if len(o.below(name)) > 0 || err == nil && in == "." && fi.IsDir() {
		return info{name: path.Base(name), mode: fs.ModeDir | 0o555}, nil
	}
	return fi, err
}
