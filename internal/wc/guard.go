package wc

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
)

// ErrFault is what Guard makes of a fault: the memory behind a mapping is gone.
var ErrFault = errors.New("the mapped device memory is no longer there")

// Guard is called with defer around copies, with the value that Arm returned,
// and turns a fault of the goroutine's memory accesses into an error:
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

// Arm makes faults of this goroutine panics, and returns what was set before.
func Arm() (before bool) { return debug.SetPanicOnFault(true) }
