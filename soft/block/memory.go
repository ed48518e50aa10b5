package block

import (
	"os"

	"golang.org/x/sys/unix"
)

// NewMemory makes a drive of n zero bytes in memory.
func NewMemory(n int64) (*File, error) {
	fd, err := unix.MemfdCreate("culvert-drive", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "memory")
	defer f.Close() // the drive has its own descriptor
	if err := f.Truncate(n); err != nil {
		return nil, err
	}
	return Adopt(f)
}
