package route

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// uptodate marks the pages of a mapping that are in the page cache with their
// contents: those of which a read failed are in it, too, but without.
func uptodate(mem []byte) ([]byte, error) {
	page := os.Getpagesize()
	marks := make([]byte, (len(mem)+page-1)/page)
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(unsafe.SliceData(mem))), uintptr(len(mem)), uintptr(unsafe.Pointer(unsafe.SliceData(marks))))
	if errno != 0 {
		return nil, os.NewSyscallError("mincore", errno)
	}
	return marks, nil
}
