package gdrdrv

import (
	"errors"
	"syscall"
	"unsafe"

	"github.com/culvert-io/culvert/internal/dev"
)

// ioctl issues one request. The module never waits for a signal, so that an
// interrupted request has not begun.
func ioctl[T any](n dev.Node, req uintptr, arg *T) error {
	for {
		err := n.Ioctl(req, unsafe.Pointer(arg))
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
