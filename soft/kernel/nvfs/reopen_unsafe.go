package nvfs

import (
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// reopen opens the file behind a descriptor once more. It is on the path of every
// READ, and makes no string.
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

// cwd says that a path is looked up as usual. It is negative, and so no constant
// that becomes a uintptr.
var cwd = unix.AT_FDCWD
