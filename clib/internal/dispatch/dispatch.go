// Package dispatch is the Go side of the C libraries. A shim sends the number of
// a function and its arguments as words. The generated table says what the
// function needs and which method answers it. Every failure becomes a code of the
// library, including a panic or a fault at a wild pointer.
package dispatch

import (
	"fmt"
	"math/bits"
	"runtime/debug"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/clib/internal/softcuda"
	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
)

// maxWords is at least the number of words of any function.
const maxWords = 16

// Words are the arguments of a call. Only as many as the function has exist in
// memory; without arguments the pointer is nil.
type Words [maxWords]uint64

// An entry is one C function.
type entry struct {
	name    string
	returns *returns
	need    softcuda.Need
	at      int8   // the word that names what the function needs, or -1
	nonNull uint16 // the words that must not be NULL, as bits
	call    func(*Core, softcuda.Call, *Words) (int64, error)
}

// entries are all functions, in the order of the table.
var entries = slices.Concat(cufileEntries, cudaEntries, cudartEntries, verbsEntries, devEntries, gdrapiEntries)

// Call answers function fn.
func (c *Core) Call(fn int, t *softcuda.Thread, a *Words) (value int64, errno int32) {
	if fn < 0 || fn >= len(entries) {
		return -1, int32(unix.ENOSYS)
	}
	e := &entries[fn]
	n, err := c.guarded(e, t, a)
	if err != nil {
		c.log(e.name, err)
		if e.returns == &driverStatus || e.returns == &runtimeStatus {
			c.CUDA.Note(e.name, err)
		}
	}
	return e.returns.make(c, t, n, err)
}

// guarded calls the entry so that no panic escapes into C. Whether a fault is a
// panic is a property of the goroutine. The one that answers C keeps it, which
// is cheaper than to set and restore it for each call.
func (c *Core) guarded(e *entry, t *softcuda.Thread, a *Words) (n int64, err error) {
	debug.SetPanicOnFault(true)
	defer func() {
		if p := recover(); p != nil {
			n, err = 0, explain(p)
		}
	}()
	if e.nonNull != 0 && e.hasNull(a) {
		return 0, e.returns.null
	}
	if e.need != softcuda.NeedNothing {
		return c.prepared(e, t, a)
	}
	return e.call(c, softcuda.Call{Thread: t}, a)
}

// hasNull reports whether a pointer is NULL that must not be.
func (e *entry) hasNull(a *Words) bool {
	for m := e.nonNull; m != 0; m &= m - 1 {
		if a[bits.TrailingZeros16(m)] == 0 {
			return true
		}
	}
	return false
}

// prepared looks up what the function needs and calls it.
func (c *Core) prepared(e *entry, t *softcuda.Thread, a *Words) (int64, error) {
	var arg uint64
	if e.at >= 0 {
		arg = a[e.at]
	}
	call, err := e.returns.prepare(c, t, e.need, arg)
	if err != nil {
		return 0, err
	}
	return e.call(c, call, a)
}

// A crash is the error of a call that panicked, with its codes for each library.
type crash struct {
	text  string
	codes []error
}

func (c *crash) Error() string   { return c.text }
func (c *crash) Unwrap() []error { return c.codes }

// explain tells a fault, which is a wild pointer of the program, from an error
// in Go code, whose trace is worth reporting.
func explain(p any) error {
	if addr, ok := cmem.Fault(p); ok {
		return &crash{fmt.Sprintf("invalid pointer: fault at %#x", addr), []error{gpu.ErrInvalidValue, cufile.InvalidValue, unix.EFAULT}}
	}
	return &crash{fmt.Sprintf("panic: %v\n%s", p, debug.Stack()), []error{gpu.ErrUnknown, cufile.InternalError, unix.EFAULT}}
}
