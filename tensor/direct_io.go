package tensor

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
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

// pinnedBuffer allocates pinned memory: a mapped buffer that the GPU's driver pins, or
// else memory of the driver, which is in single pages.
func pinnedBuffer(dev gpu.Device, n int) ([]byte, func(), error) {
	if buf, free, err := registeredBuffer(dev, n); err == nil {
		return buf, free, nil
	}
	a, err := dev.Alloc(gpu.KindHost, uint64(n), 0)
	if err != nil {
		return nil, nil, err
	}
	return gpu.HostBytes(a, uint64(n)), func() { _ = dev.Free(a) }, nil
}

func registeredBuffer(dev gpu.Device, n int) ([]byte, func(), error) {
	buf, free, err := mappedBuffer(n)
	if err != nil {
		return nil, nil, err
	}
	// Otherwise a program that forks would continue with a copy of the memory, and
	// the GPU with the original.
	err = unix.Madvise(buf, unix.MADV_DONTFORK)
	if err == nil {
		clear(buf) // pages that are there are pinned faster
		err = dev.Register(uintptr(gpu.HostAddr(buf)), uint64(n), 0)
	}
	if err != nil {
		free()
		return nil, nil, err
	}
	return buf, func() {
		_ = dev.Unregister(uintptr(gpu.HostAddr(buf)))
		free()
	}, nil
}

const hugePage = 2 << 20

// mappedBuffer allocates pages outside the heap: they are aligned for O_DIRECT and
// go back to the system at once. Large buffers are in huge pages if the kernel has
// some: a disk needs a list of contiguous memory, and with single pages 2 GiB took
// 0.61 to 0.67 s to save where huge pages took 0.44 s.
func mappedBuffer(n int) ([]byte, func(), error) {
	room := n
	if n >= hugePage {
		room += hugePage
	}
	all, err := unix.Mmap(-1, 0, room, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, nil, os.NewSyscallError("mmap", err)
	}
	buf := all[:n]
	if n >= hugePage {
		at := alignUp(uint64(gpu.HostAddr(all)), hugePage) - uint64(gpu.HostAddr(all))
		buf = all[at:][:n]
		_ = unix.Madvise(buf[:n&^(hugePage-1)], unix.MADV_HUGEPAGE)
	}
	return buf, func() { unix.Munmap(all) }, nil
}
