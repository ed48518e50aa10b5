package nvme

import (
	"unsafe"

	abi "github.com/culvert-io/culvert/internal/abi/nvme"
)

// array is memory that is shared with a controller, as entries of a queue or of a list.
func array[T abi.Command | abi.Completion | uint64](b []byte) []T {
	var one T
	return unsafe.Slice((*T)(unsafe.Pointer(&b[0])), len(b)/int(unsafe.Sizeof(one)))
}

// inPage is the offset of the memory in its page.
func inPage(b []byte) uintptr { return uintptr(unsafe.Pointer(&b[0])) % pageSize }

// view is a copy of the data structure at the start of b.
func view[T abi.IdentifyController | abi.IdentifyNamespace | abi.NamespaceList](b []byte) *T {
	v := *(*T)(unsafe.Pointer(&b[:abi.IdentifySize][0]))
	return &v
}
