package nvfs

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// newShadow makes zeroed pages with two mappings: one for the module as long as the
// mgroup lives, one for the process until Unmap.
func newShadow(n int) (kernel, user []byte, err error) {
	fd, err := unix.MemfdCreate("nvidia-fs", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, nil, err
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, int64(n)); err != nil {
		return nil, nil, err
	}
	const prot = unix.PROT_READ | unix.PROT_WRITE
	if kernel, err = unix.Mmap(fd, 0, n, prot, unix.MAP_SHARED); err != nil {
		return nil, nil, err
	}
	if user, err = unix.Mmap(fd, 0, n, prot, unix.MAP_SHARED); err != nil {
		_ = unix.Munmap(kernel) // the first error is the one to report
		return nil, nil, err
	}
	return kernel, user, nil
}

// Addr returns the address of the first byte.
func (v *view) Addr() uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(v.mem))) }
