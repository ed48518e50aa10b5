package ring

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// sigaction is the kernel's, of which only the handler is looked at. It comes first.
type sigaction [4]uint64

func (s *sigaction) handler() uint64 { return s[0] }

// swapBus sets the action for SIGBUS, unless it is nil, and returns the one before.
func swapSIGBUS(next *sigaction) (before sigaction) {
	const maskLen = 8
	unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGBUS), uintptr(unsafe.Pointer(next)), uintptr(unsafe.Pointer(&before)), maskLen, 0, 0)
	return before
}

var goSIGBUS = swapSIGBUS(nil)

// faultsReturn reports whether a fault in a mapping comes back as an error: Go's
// handler does that. In a program of another language somebody may have put his
// own in its place, and that would end the process.
func faultsRecoverable() bool {
	now := swapSIGBUS(nil)
	return now.handler() == goSIGBUS.handler()
}
