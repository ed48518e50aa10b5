package dev

import (
	"fmt"
	"io/fs"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Host returns the operating system of this computer.
func Host() OS { return host{} }

type host struct{}

func (host) FS() fs.FS { return os.DirFS("/") }

func (host) Open(path string) (Node, error) {
	for {
		fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
		switch err {
		case nil:
			return &hostNode{path: path, fd: fd}, nil
		case unix.EINTR:
			continue
		}
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
}

// A hostNode has a bare descriptor: an os.File would add it to the network poller and
// wrap each ioctl in a closure.
type hostNode struct {
	path string
	mu   sync.RWMutex // held for reading while fd is in use
	fd   int          // -1 when closed
}

func (n *hostNode) Ioctl(req uintptr, arg unsafe.Pointer) error {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if n.fd < 0 {
		return n.fail(fmt.Sprintf("ioctl %#x", req), fs.ErrClosed)
	}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(n.fd), req, uintptr(arg)); errno != 0 {
		return n.fail(fmt.Sprintf("ioctl %#x", req), errno)
	}
	return nil
}

func (n *hostNode) Mmap(off int64, size, prot int) (Mapping, error) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if n.fd < 0 {
		return nil, n.fail("mmap", fs.ErrClosed)
	}
	return mmap(n.path, n.fd, off, size, prot)
}

func (n *hostNode) Fd() int {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.fd
}

func (n *hostNode) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.fd < 0 {
		return n.fail("close", fs.ErrClosed)
	}
	err := unix.Close(n.fd)
	n.fd = -1
	if err != nil {
		return n.fail("close", err)
	}
	return nil
}

func (n *hostNode) fail(op string, err error) error {
	return &fs.PathError{Op: op, Path: n.path, Err: err}
}

// MapFile maps part of a file that no [OS] opened: a descriptor that a driver's
// library exported. The mapping outlives the file.
func MapFile(f *os.File, off int64, size, prot int) (Mapping, error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	var m Mapping
	err = &fs.PathError{Op: "mmap", Path: f.Name(), Err: fs.ErrClosed} // the only reason why Control does not call
	_ = conn.Control(func(fd uintptr) { m, err = mmap(f.Name(), int(fd), off, size, prot) })
	return m, err
}

func mmap(path string, fd int, off int64, size, prot int) (Mapping, error) {
	if size <= 0 {
		return nil, &fs.PathError{Op: "mmap", Path: path, Err: unix.EINVAL}
	}
	p, err := unix.MmapPtr(fd, off, nil, uintptr(size), prot, unix.MAP_SHARED)
	if err != nil {
		return nil, &fs.PathError{Op: "mmap", Path: path, Err: err}
	}
	return &hostMapping{path: path, addr: p, size: size}, nil
}

type hostMapping struct {
	path string
	mu   sync.Mutex
	addr unsafe.Pointer
	size int
	gone bool
}

func (m *hostMapping) Addr() uintptr { return uintptr(m.addr) }
func (m *hostMapping) Len() int      { return m.size }

func (m *hostMapping) Unmap() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gone {
		return nil
	}
	if err := unix.MunmapPtr(m.addr, uintptr(m.size)); err != nil {
		return &fs.PathError{Op: "munmap", Path: m.path, Err: err}
	}
	m.gone = true
	return nil
}
