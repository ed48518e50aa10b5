// Package hostmem answers whether there is memory at an address that a caller gave,
// without touching it: a fault could reach a handler of the program.
package hostmem

import (
	"os"

	"golang.org/x/sys/unix"
)

// Mapped reports whether all of a range is mapped. Whether it can be read or written
// is not known before a transfer. The system call looks at the mappings only, whatever
// the length, and writes nothing back.
func Mapped(base, n uint64) bool {
	from := base &^ (uint64(os.Getpagesize()) - 1)
	end := base + n
	if end < base {
		return false
	}
	_, _, err := unix.Syscall(unix.SYS_MSYNC, uintptr(from), uintptr(end-from), unix.MS_ASYNC)
	return err != unix.ENOMEM
}
