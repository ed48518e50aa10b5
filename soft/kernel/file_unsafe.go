package kernel

import (
	"unsafe"

	"github.com/culvert-io/culvert/internal/dev"
)

// A File is one open of a module's node: the module's file operations. Errors
// are syscall.Errno, and the OS adds operation and path. Calls may come
// concurrently; Release comes last.
type File interface {
	Ioctl(req uintptr, arg unsafe.Pointer) error
	Mmap(off int64, n, prot int) (dev.Mapping, error)
	// Release is called when the node was closed and all its mappings were
	// unmapped.
	Release()
}

func (n *node) Ioctl(req uintptr, arg unsafe.Pointer) error {
	if !n.enter() {
		return n.fail("ioctl", errClosed)
	}
	defer n.leave()
	if err := n.file.Ioctl(req, arg); err != nil {
		return n.fail(ioctlName(req), err)
	}
	return nil
}
