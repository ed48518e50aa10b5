package transfer

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// futimens sets the times of an open file, which may have no name. A null path makes
// utimensat(2) use the descriptor itself; a path would need /proc.
func futimens(f *os.File, access, modified unix.Timespec) error {
	times := [2]unix.Timespec{access, modified}
	_, _, errno := unix.Syscall6(unix.SYS_UTIMENSAT, f.Fd(), 0, uintptr(unsafe.Pointer(&times)), 0, 0, 0)
	if errno != 0 {
		return os.NewSyscallError("futimens", errno)
	}
	return nil
}
