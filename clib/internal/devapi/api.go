package devapi

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/internal/dev"
)

// An API answers the calls of a process.
type API struct {
	os      func() (dev.OS, error)
	exports MapExport
	files   *handle.Table[*file]

	mu   sync.Mutex // guards users of files, and maps
	maps []*mapping // by address
}

// A file is an open file description of a device node: one open, and the descriptors
// that dup made of it.
type file struct {
	dev.Node
	writable bool
	users    int // guarded by API.mu
}

// MapExport maps n bytes from off of a dma-buf.
type MapExport func(fd int, off int64, n uint64, prot int) (dev.Mapping, error)

// New returns an API for the nodes of an operating system, and for dma-bufs of its GPUs.
func New(os func() (dev.OS, error), exports MapExport) *API {
	return &API{os: os, exports: exports, files: handle.NewTable[*file](0x30)}
}

const (
	maxPath  = 4096
	nodeMode = unix.S_IFCHR | 0o666
	fileMode = unix.S_IFREG | 0o444
	dirMode  = unix.S_IFDIR | 0o555
)

// Open opens a path as open(2) does and returns a descriptor. It stores the ID of a
// device node at id, or 0 for a file, whose text the descriptor has.
func (a *API) Open(path cmem.Ptr, flags int32, id cmem.Ptr) (int64, error) {
	name, o, err := a.resolve(path)
	if err != nil {
		return -1, err
	}
	cmem.Touch(id)
	switch {
	case flags&unix.O_DIRECTORY != 0:
		return -1, syscall.ENOTDIR // directories are not listed
	case isNode(name):
		return a.openNode(o, name, flags, id)
	case flags&unix.O_ACCMODE != unix.O_RDONLY:
		return -1, syscall.EACCES
	}
	cmem.Store(id, handle.ID(0))
	return openFile(o, name, flags)
}

// resolve returns the path and the operating system that has it.
func (a *API) resolve(path cmem.Ptr) (string, dev.OS, error) {
	name, ok := cmem.String(path, maxPath)
	if !ok {
		return "", nil, syscall.ENAMETOOLONG
	}
	o, err := a.os()
	return name, o, err
}

// isNode tells device nodes from files. The software kernel has no other files in /dev.
func isNode(name string) bool { return strings.HasPrefix(name, "/dev/") }

func (a *API) openNode(o dev.OS, name string, flags int32, id cmem.Ptr) (int64, error) {
	n, err := o.Open(name)
	if err != nil {
		return -1, err
	}
	fd, err := placeholder(name, flags, nil)
	if err != nil {
		return -1, errors.Join(err, n.Close())
	}
	f := &file{Node: n, writable: flags&unix.O_ACCMODE != unix.O_RDONLY, users: 1}
	i, ok := a.files.Add(f)
	if !ok {
		return -1, errors.Join(syscall.EMFILE, n.Close(), unix.Close(fd))
	}
	cmem.Store(id, i)
	return int64(fd), nil
}

// openFile returns a descriptor with the text that a file has now.
func openFile(o dev.OS, name string, flags int32) (int64, error) {
	text, err := fs.ReadFile(o.FS(), relative(name))
	if err != nil {
		return -1, explain(err)
	}
	fd, err := placeholder(name, flags, text)
	return int64(fd), err
}

func relative(name string) string { return strings.TrimPrefix(name, "/") }

// explain adds the errno to an error of a file system that is not a kernel's.
func explain(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return errors.Join(syscall.ENOENT, err)
	}
	return err
}

// placeholder returns a descriptor of a file in memory that never changes again. Its
// inode number is its own, by which the C half recognises it.
func placeholder(name string, flags int32, text []byte) (int, error) {
	create := unix.MFD_ALLOW_SEALING
	if flags&unix.O_CLOEXEC != 0 {
		create |= unix.MFD_CLOEXEC
	}
	fd, err := unix.MemfdCreate(name[:min(len(name), 200)], create) // the kernel's limit is 249
	if err != nil {
		return -1, fmt.Errorf("placeholder of %s: %w", name, err)
	}
	if err := fill(fd, text); err != nil {
		return -1, errors.Join(fmt.Errorf("placeholder of %s: %w", name, err), unix.Close(fd))
	}
	return fd, nil
}

func fill(fd int, text []byte) error {
	for off := 0; off < len(text); {
		n, err := unix.Pwrite(fd, text[off:], int64(off))
		if err != nil {
			return err
		}
		off += n
	}
	_, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_GROW|unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL)
	return errors.Join(unix.Fchmod(fd, fileMode&0o777), err)
}

// Mode returns the st_mode of a path.
func (a *API) Mode(path cmem.Ptr) (int64, error) {
	name, o, err := a.resolve(path)
	if err != nil {
		return -1, err
	}
	if isNode(name) {
		n, err := o.Open(name)
		if err != nil {
			return -1, err
		}
		return nodeMode, n.Close()
	}
	i, err := fs.Stat(o.FS(), relative(name))
	switch {
	case err != nil:
		return -1, explain(err)
	case i.IsDir():
		return dirMode, nil
	}
	return fileMode, nil
}

func (a *API) find(id handle.ID) (*file, error) {
	f, ok := a.files.Get(id)
	if !ok {
		return nil, syscall.EBADF
	}
	return f, nil
}

// Dup counts another descriptor of an open file.
func (a *API) Dup(id handle.ID) error {
	f, err := a.find(id)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if f.users == 0 {
		return syscall.EBADF
	}
	f.users++
	return nil
}

// Close counts a descriptor out. The last closes the node.
func (a *API) Close(id handle.ID) error {
	f, err := a.find(id)
	if err != nil {
		return err
	}
	a.mu.Lock()
	f.users--
	last := f.users == 0
	a.mu.Unlock()
	if !last {
		return nil
	}
	a.files.Remove(id)
	return f.Node.Close()
}

// Ioctl passes a request to the emulated module.
func (a *API) Ioctl(id handle.ID, req uint64, arg cmem.Ptr) error {
	f, err := a.find(id)
	if err != nil {
		return err
	}
	return f.Node.Ioctl(uintptr(req), arg.Pointer())
}
