package cufile

import (
	"errors"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/route"
)

// An Error names the operation, the file or memory it was for, the cause, and
// what would help. errors.Is works on its Code and on what caused it: a
// gpu.Code, an errno.
type Error struct {
	Op     string // "read", "register buffer"
	Object string // the file's name or the memory's address
	Code   Code
	Err    error  // the cause; may be nil
	Fix    string // may be empty
}

func (e *Error) Error() string {
	s := e.Op + " " + e.Object + ": " + e.Code.Error()
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	if _, ok := errors.AsType[*route.RequireError](e.Err); ok { // the reason is in the route, not in the code
		s = e.Op + " " + e.Object + ": " + e.Err.Error() + ", " + e.Code.Error()
	}
	if e.Fix != "" {
		s += " (fix: " + e.Fix + ")"
	}
	return s
}

// Unwrap gives code and cause to errors.Is and errors.As.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Code}
	}
	return []error{e.Code, e.Err}
}

// CodeOf is the code inside err: Success for nil, InternalError where there is
// none.
func CodeOf(err error) Code {
	if err == nil {
		return Success
	}
	if c, ok := errors.AsType[Code](err); ok {
		return c
	}
	return InternalError
}

// codeFor picks the code for an error of a lower layer.
func codeFor(err error) Code {
	if errors.Is(err, route.ErrFreed) {
		return CUDAPointerInvalid
	}
	if _, ok := errors.AsType[*route.RequireError](err); ok {
		return IONotSupported
	}
	if _, ok := errors.AsType[gpu.Code](err); ok {
		return CUDADriverError
	}
	if e, ok := errors.AsType[injected](err); ok && e.CuFile() != 0 {
		return Code(e.CuFile())
	}
	return IOError
}

// injected is a failure that a test asked for.
type injected interface {
	error
	CuFile() int32 // the code; 0 if an errno was asked for
}
