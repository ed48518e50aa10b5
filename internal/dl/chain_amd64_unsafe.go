//go:build linux && amd64 && !nodl

package dl

import (
	"runtime"
	"sync"
	"unsafe"
)

// chainFrame is what the assembly walks. It is not on a stack, since Go's move.
type chainFrame struct {
	left   uintptr // steps not yet done
	result uintptr // of the last call
	steps  [maxSteps]Step
}

var chainFrames = sync.Pool{New: func() any { return new(chainFrame) }}

// chainPC is the address of the assembly function, which follows C's rules.
var chainPC uintptr

// chainC is never called from Go, only by its address.
//
//lint:ignore U1000 declared for vet, which compares it with the assembly
func chainC()

// cgocall calls a C function of one word: what purego calls, too, after it has
// laid out its arguments, of which a chain has none. The runtime keeps it for
// such packages.
//
//go:linkname cgocall runtime.cgocall
func cgocall(fn, arg unsafe.Pointer) int32

func chain(steps []Step) (int32, int) {
	f := chainFrames.Get().(*chainFrame)
	f.left = uintptr(copy(f.steps[:], steps))
	f.result = 0
	if f.left > 0 {
		cgocall(*(*unsafe.Pointer)(unsafe.Pointer(&chainPC)), unsafe.Pointer(f))
	}
	result, done := int32(f.result), len(steps)-int(f.left)
	runtime.KeepAlive(f)
	chainFrames.Put(f)
	return result, done
}
