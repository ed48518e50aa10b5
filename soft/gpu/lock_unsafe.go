package gpu

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// mlockOnFault locks the pages of b that are there, and every other one as
// soon as it is. Unlike mlock it brings none: mlock asks for a page of a file
// that cannot be read again and again, and never returns.
func mlockOnFault(b []byte) error {
	_, _, errno := unix.Syscall(unix.SYS_MLOCK2, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MLOCK_ONFAULT)
	if errno != 0 {
		return errno
	}
	return nil
}
