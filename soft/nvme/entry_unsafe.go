package nvme

import (
	"sync/atomic"
	"unsafe"

	abi "github.com/culvert-io/culvert/internal/abi/nvme"
)

// commandBytes is the memory of commands.
func commandBytes(c []abi.Command) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&c[0])), len(c)*abi.CommandSize)
}

// putCompletion writes an entry into lent memory, which a driver watches: the
// dword with the phase tag comes last, and the rest is there before it. Entries
// are aligned to their size, so the memory is in one piece.
func putCompletion(segs [][]byte, e *Completion) {
	p := (*abi.Completion)(unsafe.Pointer(&segs[0][:abi.CompletionSize][0]))
	p.DW0, p.DW1, p.SQHD, p.SQID = e.DW0, e.DW1, e.SQHD, e.SQID
	atomic.StoreUint32(&p.DW3, e.DW3)
}

// structBytes is the memory of a data structure of Identify.
func structBytes[T abi.IdentifyController | abi.IdentifyNamespace | abi.NamespaceList](v *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(v)), abi.IdentifySize)
}
