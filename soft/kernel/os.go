package kernel

import (
	"fmt"
	"io/fs"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/dev"
)

// An OS is an emulated operating system. It is safe for concurrent use.
type OS struct {
	//lint:ignore U1000 internal/dev reads it
	seam // what clients of the modules use

	fs overlay

	mu    sync.Mutex
	place [2]string // see Place
	nodes map[string]func() (File, error)
	open  map[int]*node
}

// seam is embedded unexported, so that users do not see an internal type.
//
//lint:ignore U1000 internal/dev reads it
type seam = dev.Seam

// A view is an OS for clients of its modules.
type view struct{ o *OS }

func (v view) Open(path string) (dev.Node, error) { return v.o.openNode(path) }
func (v view) FS() fs.FS                          { return v.o.FS() }
func (v view) Simulated() bool                    { return true }

// Below returns where all files are: see [OS.Place].
func (v view) Below() (fileSystem, number string) {
	v.o.mu.Lock()
	defer v.o.mu.Unlock()
	return v.o.place[0], v.o.place[1]
}

// New returns an operating system without device nodes. Modules mount files over
// base, normally the root of the real file system, so that real disks have real
// descriptions.
func New(base fs.FS) *OS {
	o := &OS{fs: overlay{base: base, tree: Tree{}, links: map[string]string{}}, nodes: map[string]func() (File, error){}, open: map[int]*node{}}
	return dev.With(o, dev.OS(view{o}))
}

// Register adds a device node. open runs for each open and may return a
// syscall.Errno.
func (o *OS) Register(path string, open func() (File, error)) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.nodes[path] != nil {
		return fmt.Errorf("node %s: %w", path, fs.ErrExist)
	}
	o.nodes[path] = open
	return nil
}

// Unregister removes a device node. Open files stay open.
func (o *OS) Unregister(path string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.nodes, path)
}

// Mount mounts files at a path such as "proc/driver/nvidia". It hides what was there.
func (o *OS) Mount(dir string, t Tree) { o.fs.mount(dir, t) }

// Link adds a symbolic link, such as sysfs has.
func (o *OS) Link(name, target string) { o.fs.link(name, target) }

// Place says that an emulated drive serves all files, whatever they really are on:
// they are on a file system of this type, on the block device with this number.
func (o *OS) Place(fileSystem, number string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.place = [2]string{fileSystem, number}
}

// FS returns the file system with all mounts.
func (o *OS) FS() fs.FS { return &o.fs }

// openNode opens a registered device node. Those of the host cannot be opened.
func (o *OS) openNode(path string) (dev.Node, error) {
	o.mu.Lock()
	open := o.nodes[path]
	o.mu.Unlock()
	if open == nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: syscall.ENOENT}
	}
	f, err := open()
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	n := &node{os: o, path: path, file: f}
	n.refs.Store(1)
	if err := o.number(n); err != nil {
		f.Release()
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return n, nil
}

// number adds a node to the open files. Its number is a real descriptor, so that it
// never equals one of the host that an ioctl may name.
func (o *OS) number(n *node) error {
	fd, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	n.fd = fd
	o.open[fd] = n
	return nil
}

func (o *OS) forget(n *node) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.open, n.fd)
	return unix.Close(n.fd)
}

// File returns the open file with a number, or nil. A module calls it for a number in
// a request.
func (o *OS) File(fd int) File {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n := o.open[fd]; n != nil {
		return n.file
	}
	return nil
}

// OpenFiles returns the number of open files.
func (o *OS) OpenFiles() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.open)
}
