package nvfs

import (
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// reopen opens the file behind a descriptor again. Every READ calls it, so it
// allocates no string.
func reopen(fd, flags int) (int, error) {
	var room [32]byte
	path := append(strconv.AppendInt(append(room[:0], "/proc/self/fd/"...), int64(fd), 10), 0)
	for {
		n, _, errno := unix.Syscall6(unix.SYS_OPENAT, uintptr(cwd), uintptr(unsafe.Pointer(&path[0])), uintptr(flags|unix.O_CLOEXEC), 0, 0, 0)
		switch errno {
		case 0:
			return int(n), nil
		case unix.EINTR:
			continue
		}
		return -1, errno
	}
}

// cwd is AT_FDCWD as a variable: a negative constant cannot become a uintptr.
var cwd = unix.AT_FDCWD
