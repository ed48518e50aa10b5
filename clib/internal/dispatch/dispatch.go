// Package dispatch is the Go side of the C libraries. A shim sends the number of a
// function and its arguments as words; the generated table takes the words
// apart and calls the method that answers. Whatever goes wrong on the way, a
// panic or a fault at a wild pointer included, comes back as a code.
package dispatch

import (
	"errors"
	"fmt"
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

// Words are the arguments of a call. Only as many as the function has are
// really there.
type Words [maxWords]uint64

// A result is what a function returns, and the errno that goes with it.
type result struct {
	value int64
	errno int32
	err   error // what the code came from
}

// An entry is one C function.
type entry struct {
	name   string
	broken func(*Core, *softcuda.Thread, error) result
	call   func(*Core, *softcuda.Thread, *Words) result
}

// entries are all functions, in the order of the table that made them.
var entries = slices.Concat(cufileEntries, cudaEntries, cudartEntries)

// Call answers function fn.
func (c *Core) Call(fn int, t *softcuda.Thread, a *Words) (value int64, errno int32) {
	if fn < 0 || fn >= len(entries) {
		return -1, int32(unix.ENOSYS)
	}
	e := &entries[fn]
	r := c.guarded(e, t, a)
	if r.err != nil && c.Log != nil {
		fmt.Fprintf(c.Log, "culvert: %s: %v\n", e.name, r.err)
	}
	return r.value, r.errno
}

// guarded calls the entry so that nothing can escape into C. That a fault is a
// panic and not the end of the process is a property of the goroutine; the one
// that answers C keeps it, which is cheaper than setting and restoring it for
// each call.
func (c *Core) guarded(e *entry, t *softcuda.Thread, a *Words) (r result) {
	debug.SetPanicOnFault(true)
	defer func() {
		if p := recover(); p != nil {
			r = e.broken(c, t, explain(p))
		}
	}()
	return e.call(c, t, a)
}

// A wildPointer is a fault at an address that the caller gave.
type wildPointer uintptr

func (p wildPointer) Error() string {
	return fmt.Sprintf("a pointer leads nowhere: fault at %#x", uintptr(p))
}

// explain tells a fault, which is the caller's wild pointer, from a mistake of
// ours, which is worth a trace.
func explain(p any) error {
	if addr, ok := cmem.Fault(p); ok {
		return wildPointer(addr)
	}
	return fmt.Errorf("panic: %v\n%s", p, debug.Stack())
}

// What calls that panicked return, by the kind of their result.

func brokenDriver(_ *Core, _ *softcuda.Thread, err error) result {
	return result{value: int64(codeOfBroken(err)), err: err}
}

func brokenRuntime(c *Core, t *softcuda.Thread, err error) result {
	r := c.runtimeStatus(t, codeOfBroken(err))
	r.err = err
	return r
}

func brokenFile(_ *Core, _ *softcuda.Thread, err error) result {
	code := cufile.InternalError
	if _, ok := err.(wildPointer); ok {
		code = cufile.InvalidValue
	}
	return result{value: int64(code), err: err}
}

func brokenCount(_ *Core, _ *softcuda.Thread, err error) result {
	return result{value: -1, errno: int32(unix.EFAULT), err: err}
}

func brokenVoid(_ *Core, _ *softcuda.Thread, err error) result { return result{err: err} }

func codeOfBroken(err error) gpu.Code {
	if _, ok := err.(wildPointer); ok {
		return gpu.ErrInvalidValue
	}
	return gpu.ErrUnknown
}

// driverStatus makes a CUresult.
func driverStatus(err error) result {
	return result{value: int64(gpu.CodeOf(err)), err: err}
}

// runtimeStatus makes a cudaError_t and remembers it.
func (c *Core) runtimeStatus(t *softcuda.Thread, err error) result {
	return result{value: int64(c.Runtime.Status(t, err)), err: err}
}

// fileStatus makes a CUfileError_t: the code in the low half, CUDA's, where
// that is the cause, in the high one.
func fileStatus(err error) result {
	code := cufile.CodeOf(err)
	v := int64(uint32(code))
	if code == cufile.CUDADriverError {
		v |= int64(gpu.CodeOf(err)) << 32
	}
	return result{value: v, err: err}
}

// fileCount makes the result of a read or a write: bytes, or -1 with errno.
func fileCount(n int64, err error) result {
	if err == nil {
		return result{value: n}
	}
	return result{value: -1, errno: fileErrno(err), err: err}
}

// fileErrno picks the errno for a failed transfer: the operating system's
// where it has one, EIO where memory or CUDA is to blame, and otherwise
// cuFile's code, as NVIDIA's library does.
func fileErrno(err error) int32 {
	if e, ok := errors.AsType[unix.Errno](err); ok {
		return int32(e)
	}
	switch code := cufile.CodeOf(err); code {
	case cufile.CUDAPointerRangeError, cufile.CUDADriverError, cufile.IOError:
		return int32(unix.EIO)
	default:
		return int32(code)
	}
}
