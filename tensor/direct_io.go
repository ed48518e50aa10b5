package tensor

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// allocate reserves the space of a file, so that a full disk shows before
// anything is written and the blocks lie together.
func allocate(f *os.File, size int64) error {
	err := unix.Fallocate(int(f.Fd()), 0, 0, size)
	for errors.Is(err, unix.EINTR) {
		err = unix.Fallocate(int(f.Fd()), 0, 0, size)
	}
	switch {
	case errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.ENOSYS):
		return f.Truncate(size)
	case err != nil:
		return fmt.Errorf("reserving %d bytes: %w", size, err)
	}
	return nil
}

// openDirect opens the file a second time, past the page cache. It returns -1
// where that cannot be had.
func openDirect(f *os.File) int {
	fd, err := unix.Open(f.Name(), unix.O_WRONLY|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return fd
}

func pwriteFull(fd int, p []byte, off int64) error {
	for len(p) > 0 {
		n, err := unix.Pwrite(fd, p, off)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return os.NewSyscallError("pwrite", err)
		case n == 0:
			return io.ErrShortWrite
		}
		p, off = p[n:], off+int64(n)
	}
	return nil
}

// mappedBuffer allocates pages outside the heap: they are aligned for direct
// I/O and go back to the system at once.
func mappedBuffer(n int) ([]byte, func(), error) {
	buf, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, nil, os.NewSyscallError("mmap", err)
	}
	return buf, func() { unix.Munmap(buf) }, nil
}
