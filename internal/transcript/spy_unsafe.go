package transcript

import (
	"unsafe"

	"github.com/culvert-io/culvert/internal/dev"
)

// A Spy is a node that records the last ioctl.
type Spy struct {
	dev.Node
	// Size is the size of a request's argument in bytes; word is its i-th
	// 64-bit word.
	Size func(req uintptr, word func(i int) uint64) int
	// Last is the last ioctl.
	Last Exchange
}

// Ioctl passes a request on.
func (s *Spy) Ioctl(req uintptr, arg unsafe.Pointer) error {
	n := 0
	if arg != nil {
		n = s.Size(req, func(i int) uint64 { return *(*uint64)(unsafe.Add(arg, 8*i)) })
	}
	s.Last = Exchange{Req: req, In: append([]byte{}, unsafe.Slice((*byte)(arg), n)...)}
	s.Last.Err = s.Node.Ioctl(req, arg)
	s.Last.Out = append([]byte{}, unsafe.Slice((*byte)(arg), n)...)
	return s.Last.Err
}
