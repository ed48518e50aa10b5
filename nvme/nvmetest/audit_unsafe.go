package nvmetest

import (
	"sync/atomic"
	"unsafe"

	abi "github.com/culvert-io/culvert/internal/abi/nvme"
)

// commandAt is a copy of the command in b.
func commandAt(b []byte) abi.Command {
	return *(*abi.Command)(unsafe.Pointer(&b[:abi.CommandSize][0]))
}

// dw3At is the last dword of the completion in b.
func dw3At(b []byte) uint32 {
	return atomic.LoadUint32((*uint32)(unsafe.Pointer(&b[:abi.CompletionSize][12])))
}
