//go:build linux && amd64 && !nodl

package dl

import (
	"runtime"
	"sync"
	"unsafe"
)

// chainFrame is the argument of the assembly. It is not on a Go stack, which may
// move.
type chainFrame struct {
	left   uintptr // remaining steps
	result uintptr // of the last call
	steps  [maxSteps]Step
}

var chainFrames = sync.Pool{New: func() any { return new(chainFrame) }}

// chainPC is the address of the assembly function, which has C's calling
// convention.
var chainPC uintptr

// chainC is never called from Go, only by its address.
//
//lint:ignore U1000 declared for vet, which compares it with the assembly
func chainC()

// cgocall calls a C function with one word as argument, as purego does. The
// runtime guarantees it to such packages.
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
