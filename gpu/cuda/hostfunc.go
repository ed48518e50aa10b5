package cuda

import (
	"sync"
	"sync/atomic"

	"github.com/culvert-io/culvert/internal/dl"
)

// hostFuncs are the functions waiting in streams, by the number that C has.
var (
	hostFuncs    sync.Map
	lastHostFunc atomic.Uintptr
)

// hostCallback is the C function that calls them. There is one for the process,
// because callbacks are limited in number and cannot be freed.
var hostCallback = sync.OnceValue(func() dl.Func {
	return dl.Callback(func(id uintptr) {
		if f, ok := hostFuncs.LoadAndDelete(id); ok {
			f.(func())()
		}
	})
})
