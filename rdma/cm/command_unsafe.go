package cm

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	abi "github.com/culvert-io/culvert/internal/abi/rdmacm"
)

// command encodes a command whose answer has out bytes.
func command[T any](code uint32, in *T, out uintptr) []byte {
	size := unsafe.Sizeof(*in)
	h := abi.Header{Cmd: code, In: uint16(size), Out: uint16(out)}
	b := append([]byte(nil), unsafe.Slice((*byte)(unsafe.Pointer(&h)), unsafe.Sizeof(h))...)
	return append(b, unsafe.Slice((*byte)(unsafe.Pointer(in)), size)...)
}

// sizeOf is the size of *p.
func sizeOf[T any](p *T) uintptr { return unsafe.Sizeof(*p) }

// do writes a command with an answer of out bytes.
func do[T any](i *id, name string, code uint32, in *T, out uintptr) error {
	return i.call(func(fd uintptr) error { return write(fd, name, command(code, in, out)) })
}

func write(fd uintptr, name string, b []byte) error {
	for {
		_, err := unix.Write(int(fd), b)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	}
}
