// Package shared allocates memory that can be mapped several times. It needs no
// descriptor after that, and works under any RLIMIT_FSIZE.
package shared

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

const readWrite = unix.PROT_READ | unix.PROT_WRITE

// New returns n zeroed bytes that use no memory before they are accessed. name is for
// /proc/self/maps.
func New(name string, n uint64) ([]byte, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &limit); err == nil && limit.Cur < n {
		// A file of that size raises SIGXFSZ. Anonymous memory has no limit, but is
		// charged at once if vm.overcommit_memory is 2.
		return mapping(-1, n, unix.MAP_ANONYMOUS)
	}
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, int64(n)); err != nil {
		return nil, os.NewSyscallError("ftruncate", err)
	}
	return Map(fd, n)
}

// Map maps the first n bytes of a file in memory.
func Map(fd int, n uint64) ([]byte, error) { return mapping(fd, n, 0) }

func mapping(fd int, n uint64, flags int) ([]byte, error) {
	p, err := unix.MmapPtr(fd, 0, nil, uintptr(n), readWrite, unix.MAP_SHARED|unix.MAP_NORESERVE|flags)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	return unsafe.Slice((*byte)(p), n), nil
}

// Again maps memory of [New] or [Map] a second time, for reading and writing.
func Again(mem []byte) ([]byte, error) {
	p, err := unix.MremapPtr(unsafe.Pointer(unsafe.SliceData(mem)), 0, nil, uintptr(len(mem)), unix.MREMAP_MAYMOVE)
	if err != nil {
		return nil, os.NewSyscallError("mremap", err)
	}
	return unsafe.Slice((*byte)(p), len(mem)), nil
}

// AgainAt maps memory of [New] or [Map] a second time, in place of what is at addr.
func AgainAt(mem []byte, addr unsafe.Pointer, prot int) error {
	// A size of 0 means a second mapping instead of a move.
	p, err := unix.MremapPtr(unsafe.Pointer(unsafe.SliceData(mem)), 0, addr, uintptr(len(mem)), unix.MREMAP_MAYMOVE|unix.MREMAP_FIXED)
	if err != nil {
		return os.NewSyscallError("mremap", err)
	}
	if prot != readWrite {
		return os.NewSyscallError("mprotect", unix.Mprotect(unsafe.Slice((*byte)(p), len(mem)), prot))
	}
	return nil
}

// Unmap removes one mapping; the memory goes with the last.
func Unmap(mem []byte) error {
	return os.NewSyscallError("munmap", unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(mem)), uintptr(len(mem))))
}
