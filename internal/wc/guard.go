package wc

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
)

// ErrFault is the error of Guard after a fault.
var ErrFault = errors.New("mapped device memory is gone")

// Guard turns a memory fault of the goroutine into an error. Defer it before
// copies, with the result of Arm:
//
//	defer wc.Guard(wc.Arm(), &err)
//
// Other panics pass through.
func Guard(before bool, err *error) {
	debug.SetPanicOnFault(before)
	switch r := recover().(type) {
	case nil:
	case runtime.Error:
		fault, ok := r.(interface{ Addr() uintptr })
		if !ok {
			panic(r)
		}
		*err = fmt.Errorf("%w: fault at %#x", ErrFault, fault.Addr())
	default:
		panic(r)
	}
}

// Arm makes faults of this goroutine panic, and returns the previous setting.
func Arm() (before bool) { return debug.SetPanicOnFault(true) }
