package ring

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// sigaction is the kernel's struct, of which only the handler is used. It is first.
type sigaction [4]uint64

func (s *sigaction) handler() uint64 { return s[0] }

// swapSIGBUS sets the action for SIGBUS, unless it is nil, and returns the old one.
func swapSIGBUS(next *sigaction) (before sigaction) {
	const maskLen = 8
	unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGBUS), uintptr(unsafe.Pointer(next)), uintptr(unsafe.Pointer(&before)), maskLen, 0, 0)
	return before
}

var goSIGBUS = swapSIGBUS(nil)

// faultsRecoverable reports whether a fault in a mapping can become an error, which
// needs Go's handler. A program in another language may have replaced it; then a
// fault would end the process.
func faultsRecoverable() bool {
	now := swapSIGBUS(nil)
	return now.handler() == goSIGBUS.handler()
}
