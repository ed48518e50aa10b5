package kernel

import (
	"fmt"
	"io/fs"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/dev"
)

// An OS is an operating system made of software. It is safe for concurrent use.
type OS struct {
	seam // what clients of the modules use

	fs overlay

	mu    sync.Mutex
	nodes map[string]func() (File, error)
	open  map[int]*node
}

// seam is embedded unexported, so that users do not see an internal type.
type seam = dev.Seam

// A view is an OS as clients of its modules see it.
type view struct{ o *OS }

func (v view) Open(path string) (dev.Node, error) { return v.o.openNode(path) }
func (v view) FS() fs.FS                          { return v.o.FS() }
func (v view) Simulated() bool                    { return true }

// New makes an operating system without nodes. Its file system is base, on
// which modules mount their own: the machine's files are real ones, so what
// describes the disks under them is real too.
func New(base fs.FS) *OS {
	o := &OS{fs: overlay{base: base}, nodes: map[string]func() (File, error){}, open: map[int]*node{}}
	return dev.With(o, dev.OS(view{o}))
}

// Register adds a node. open runs for each open of it, and may refuse with a
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

// Unregister removes a node. What is open stays open.
func (o *OS) Unregister(path string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.nodes, path)
}

// Mount puts a file system at a directory such as "proc/driver/nvidia". It
// hides what the directory held before.
func (o *OS) Mount(dir string, fsys fs.FS) { o.fs.mount(dir, fsys) }

// FS is the file system with everything that is mounted.
func (o *OS) FS() fs.FS { return &o.fs }

// openNode opens a registered node. Those of the host cannot be opened.
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
	n := &node{os: o, path: path, file: f, refs: 1}
	if err := o.number(n); err != nil {
		f.Release()
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return n, nil
}

// number enters a node into the table of open files. Its number is that of a
// real descriptor, so that it can never be taken for one of the host's that an
// ioctl may also name.
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

// File is the open file with a number, or nil. A module calls it for a number
// that it finds in a request.
func (o *OS) File(fd int) File {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n := o.open[fd]; n != nil {
		return n.file
	}
	return nil
}

// OpenFiles is the number of open nodes.
func (o *OS) OpenFiles() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.open)
}
