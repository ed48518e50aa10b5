package nvme

import (
	"sync/atomic"
	"unsafe"

	abi "github.com/culvert-io/culvert/internal/abi/nvme"
)

// commandBytes returns the memory of commands.
func commandBytes(c []abi.Command) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&c[0])), len(c)*abi.CommandSize)
}

// putCompletion writes an entry into memory that a driver polls: the dword with the
// phase tag is the last. Entries are aligned to their size, so that the memory is one
// segment.
func putCompletion(segs [][]byte, e *Completion) {
	p := (*abi.Completion)(unsafe.Pointer(&segs[0][:abi.CompletionSize][0]))
	p.DW0, p.DW1, p.SQHD, p.SQID = e.DW0, e.DW1, e.SQHD, e.SQID
	atomic.StoreUint32(&p.DW3, e.DW3)
}

// structBytes returns the memory of an Identify structure.
func structBytes[T abi.IdentifyController | abi.IdentifyNamespace | abi.NamespaceList](v *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(v)), abi.IdentifySize)
}
