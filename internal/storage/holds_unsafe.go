package storage

import (
	"syscall"
	"unsafe"
)

// Holds reports whether the file has at least size bytes now.
func (f *File) Holds(size int64) bool {
	var st syscall.Stat_t
	// It looks at the inode in memory and does not block, so the scheduler need
	// not be told.
	_, _, errno := syscall.RawSyscall(syscall.SYS_FSTAT, uintptr(f.own), uintptr(unsafe.Pointer(&st)), 0)
	return errno == 0 && st.Size >= size
}
