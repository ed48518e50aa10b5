package nvme

import (
	"unsafe"

	abi "github.com/culvert-io/culvert/internal/abi/nvme"
)

// Views of memory that is shared with a controller.

func commands(b []byte) []abi.Command {
	return unsafe.Slice((*abi.Command)(unsafe.Pointer(&b[0])), len(b)/abi.CommandSize)
}

func completions(b []byte) []abi.Completion {
	return unsafe.Slice((*abi.Completion)(unsafe.Pointer(&b[0])), len(b)/abi.CompletionSize)
}

func words(b []byte) []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Pointer(&b[0])), len(b)/8)
}

// inPage is the offset of the memory in its page.
func inPage(b []byte) uintptr { return uintptr(unsafe.Pointer(&b[0])) % pageSize }

// view is a copy of the data structure at the start of b.
func view[T abi.IdentifyController | abi.IdentifyNamespace | abi.NamespaceList](b []byte) *T {
	v := *(*T)(unsafe.Pointer(&b[:abi.IdentifySize][0]))
	return &v
}
