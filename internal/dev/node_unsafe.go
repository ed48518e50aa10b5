package dev

import (
	"errors"
	"syscall"
	"unsafe"
)

// A Node is an open device node. It is safe for concurrent use; after Close
// its methods fail with fs.ErrClosed. Errors are *fs.PathError and hold the
// errno, which errors.Is finds.
type Node interface {
	// Ioctl issues one request. arg points to the request's argument, or is
	// nil. It is not retried when interrupted: only the caller knows whether
	// the request may run twice. A pointer that the argument itself holds must
	// stay in place during the call: see runtime.Pinner.
	Ioctl(req uintptr, arg unsafe.Pointer) error
	// Mmap maps n bytes at offset off of the node, shared, with the protection
	// bits of mmap(2). The mapping outlives the node.
	Mmap(off int64, n, prot int) (Mapping, error)
	// Fd is the number by which an ioctl of the same OS names this node. On
	// the host it is a file descriptor; elsewhere it means something to the
	// OS that opened the node and to nobody else. It is -1 after Close.
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

// A Mapping is memory of a node in the process's address space.
type Mapping interface {
	Addr() uintptr
	Len() int
	// Unmap gives the addresses back. Using them afterwards is a fault. A
	// second call does nothing.
	Unmap() error
}

// Bytes is the memory of a mapping as a slice. It is not the garbage
// collector's: it is valid until Unmap.
func Bytes(m Mapping) []byte {
	addr := m.Addr()
	// The address never belonged to a Go object. Reading it through memory
	// keeps vet from taking this for arithmetic on a pointer.
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), m.Len())
}
