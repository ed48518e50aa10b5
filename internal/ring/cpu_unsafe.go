package ring

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// currentCPU is the processor that the caller runs on.
func currentCPU() uint32 {
	var cpu uint32
	unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&cpu)), 0, 0)
	return cpu
}
