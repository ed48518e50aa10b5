package tensor

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// reserve reserves the space of a file, so that a full disk shows before anything
// is written and the blocks lie together.
func reserve(f *os.File, size int64) error {
	err := unix.Fallocate(int(f.Fd()), 0, 0, size)
	for errors.Is(err, unix.EINTR) {
		err = unix.Fallocate(int(f.Fd()), 0, 0, size)
	}
	switch {
	case errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.ENOSYS):
		return f.Truncate(size)
	case err != nil:
		return fmt.Errorf("reserve %d bytes: %w", size, err)
	}
	return nil
}

// openDirect opens the file again with O_DIRECT. It returns nil if the file system
// does not support that.
func openDirect(f *os.File) *os.File {
	direct, err := os.OpenFile(f.Name(), os.O_WRONLY|unix.O_DIRECT|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	// In a directory where others may rename files, it may be another one.
	st, err := direct.Stat()
	if err == nil {
		if same, _ := f.Stat(); same != nil && os.SameFile(st, same) {
			return direct
		}
	}
	direct.Close()
	return nil
}

// mappedBuffer allocates pages outside the heap: they are aligned for O_DIRECT and
// go back to the system at once.
func mappedBuffer(n int) ([]byte, func(), error) {
	buf, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, nil, os.NewSyscallError("mmap", err)
	}
	return buf, func() { unix.Munmap(buf) }, nil
}
