package dev

import (
	"errors"
	"syscall"
	"unsafe"
)

// A Node is an open device node. It is safe for concurrent use; after Close its
// methods fail with fs.ErrClosed. Errors are *fs.PathError and wrap the errno.
type Node interface {
	// Ioctl issues one request. arg points to its argument, or is nil. It is not
	// repeated when interrupted: only the caller knows whether it may run twice.
	// Memory to which the argument points must not move during the call: see
	// runtime.Pinner.
	Ioctl(req uintptr, arg unsafe.Pointer) error
	// Mmap maps n bytes at offset off, shared, with the protection bits of mmap(2).
	// The mapping outlives the node.
	Mmap(off int64, n, prot int) (Mapping, error)
	// Fd returns the number by which an ioctl of the same OS names this node: a file
	// descriptor on the host. It is -1 after Close.
	Fd() int
	// Close waits for calls in progress.
	Close() error
}

// Ioctl issues a request with a struct as its argument, again when interrupted. It is
// for modules that are interrupted only before a request has begun.
func Ioctl[T any](n Node, req uintptr, arg *T) error {
	for {
		err := n.Ioctl(req, unsafe.Pointer(arg))
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// A Mapping is memory of a device node in the process's address space.
type Mapping interface {
	Addr() uintptr
	Len() int
	// Unmap removes the mapping. A second call does nothing.
	Unmap() error
}

// Bytes returns the memory of a mapping. It is valid until Unmap.
func Bytes(m Mapping) []byte {
	addr := m.Addr()
	// The address never belonged to a Go object. Reading it through memory keeps vet
	// from taking this for pointer arithmetic.
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), m.Len())
}
