package kernel

import (
	"fmt"
	"io/fs"
	"unsafe"
)

// A File is one open of a device node: the module's file operations. Errors are
// syscall.Errno; the OS adds operation and path. Calls may be concurrent, except
// Release, which is the last.
type File interface {
	Ioctl(req uintptr, arg unsafe.Pointer) error
	Mmap(off int64, n, prot int) (Mapping, error)
	// Release is called when the file was closed and its mappings were unmapped.
	Release()
}

// A Mapping is memory of a device node in the process's address space.
type Mapping interface {
	Addr() uintptr
	Len() int
	Unmap() error // a second call does nothing
}

func (n *node) Ioctl(req uintptr, arg unsafe.Pointer) error {
	if !n.enter() {
		return n.fail("ioctl", fs.ErrClosed)
	}
	defer n.leave()
	if err := n.file.Ioctl(req, arg); err != nil {
		return n.fail(fmt.Sprintf("ioctl %#x", req), err)
	}
	return nil
}
