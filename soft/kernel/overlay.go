package kernel

import (
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
)

// An overlay is a file system with trees mounted on it.
type overlay struct {
	base   fs.FS
	mu     sync.RWMutex
	mounts []string // paths below which base is hidden
	tree   Tree     // all mounted files
	links  map[string]string
}

var _ fs.ReadLinkFS = (*overlay)(nil)

func (o *overlay) mount(dir string, t Tree) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mounts = append(o.mounts, dir)
	for name, make := range t {
		o.tree[path.Join(dir, name)] = make
	}
}

// link adds a symbolic link.
func (o *overlay) link(name, target string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.links[name] = target
}

// resolve follows the added links in a name. Call with mu held.
func (o *overlay) resolve(name string) string {
	for range 8 { // links may lead to links, but not for ever
		before := name
		for link, target := range o.links {
			if name == link || strings.HasPrefix(name, link+"/") {
				name = path.Join(path.Dir(link), target) + name[len(link):]
				break
			}
		}
		if name == before {
			break
		}
	}
	return name
}

// hides reports whether a name is at or below a mount point.
func (o *overlay) hides(name string) bool {
	return slices.ContainsFunc(o.mounts, func(m string) bool { return name == m || strings.HasPrefix(name, m+"/") })
}

func (o *overlay) Open(name string) (fs.File, error) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	name = o.resolve(name)
	mounted, err := o.tree.Open(name)
	if o.hides(name) {
		return mounted, err
	}
	dir, ok := mounted.(*memDir)
	if !ok {
		return o.base.Open(name)
	}
	list, err := fs.ReadDir(o.base, name)
	if err != nil {
		return dir, nil // it has only mount points
	}
	list = slices.DeleteFunc(list, func(e fs.DirEntry) bool { return o.tree.has(path.Join(name, e.Name())) })
	return newDir(name, append(list, dir.left...)), nil
}

func (o *overlay) ReadLink(name string) (string, error) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	if target, ok := o.links[name]; ok {
		return target, nil
	}
	if o.hides(name) {
		return "", &fs.PathError{Op: "readlink", Path: name, Err: fs.ErrInvalid}
	}
	return fs.ReadLink(o.base, name)
}

func (o *overlay) Lstat(name string) (fs.FileInfo, error) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	if _, ok := o.links[name]; ok {
		return info{path.Base(name), fs.ModeSymlink | 0o777}, nil
	}
	if o.hides(name) || o.tree.has(name) {
		return fs.Stat(o.tree, name)
	}
	return fs.Lstat(o.base, name)
}
