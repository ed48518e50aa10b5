package ibverbs

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/dl"
)

// at is what lies at an address that C returned, or in a block. The conversion through
// memory avoids a false warning of vet.
func at[T any](address uintptr) *T { return *(**T)(unsafe.Pointer(&address)) }

// function is the function pointer at an offset of a C struct.
func function(object uintptr, offset uintptr) dl.Func { return *at[dl.Func](object + offset) }

// text is a C string.
func text(address uintptr) string { return dl.String(at[byte](address)) }

// pointers are n pointers of a C array.
func pointers(address uintptr, n int) []uintptr {
	if n <= 0 {
		return nil
	}
	return unsafe.Slice(at[uintptr](address), n)
}

// A block is memory outside of Go's heap, which C may keep pointers into: work requests
// point to each other.
type block struct {
	bytes []byte
	used  uintptr
}

func newBlock(size uintptr) (*block, error) {
	b, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("%d bytes for work requests: %w", size, err)
	}
	return &block{bytes: b}, nil
}

// room is the size of n values.
func room[T any](n int) uintptr {
	var v T
	return (unsafe.Sizeof(v)*uintptr(n) + 15) &^ 15
}

// array takes n zeroed values from the block, which must have room for them.
func array[T any](b *block, n int) []T {
	off := b.used
	b.used += room[T](n)
	_ = b.bytes[:b.used]
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b.bytes[off:]))), n)
}

// address is that of a value in a block.
func address[T any](v *T) uintptr { return uintptr(unsafe.Pointer(v)) }

func (b *block) free() error { return unix.Munmap(b.bytes) }
