package gpu

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// An Error is a failed driver call, with its code and the caller's line.
type Error struct {
	Op     string // the driver call with its arguments: "cuMemAlloc(100)"
	Code   Code
	Detail string // a limit, a name or a fix; may be empty
	File   string // of the first caller outside the drivers
	Line   int
}

func (e *Error) Error() string {
	s := fmt.Sprintf("%s failed: code = %s, message = %s", e.Op, e.Code.Name(), e.Code.Message())
	if e.Detail != "" {
		s += " (" + e.Detail + ")"
	}
	if e.File != "" {
		s = fmt.Sprintf("%s:%d  %s", filepath.Base(e.File), e.Line, s)
	}
	return s
}

// Unwrap is the code.
func (e *Error) Unwrap() error { return e.Code }

// Fail makes an *Error with the line of the first caller outside the drivers. It
// returns nil for Success. Drivers use it.
func Fail(op string, c Code, detail string) error {
	if c == Success {
		return nil
	}
	e := &Error{Op: op, Code: c, Detail: detail}
	e.File, e.Line = blame()
	return e
}

// CodeOf is the code in err: Success for nil, ErrUnknown if err has none.
func CodeOf(err error) Code {
	if err == nil {
		return Success
	}
	if c, ok := errors.AsType[Code](err); ok {
		return c
	}
	return ErrUnknown
}

// drivers are the packages whose stack frames are skipped.
var drivers = []string{
	"github.com/culvert-io/culvert/gpu.",
	"github.com/culvert-io/culvert/gpu/cuda.",
	"github.com/culvert-io/culvert/soft.",
	"github.com/culvert-io/culvert/soft/gpu.",
}

func blame() (file string, line int) {
	var pcs [32]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	for {
		f, more := frames.Next()
		inDriver := func(pkg string) bool { return strings.HasPrefix(f.Function, pkg) }
		if f.Function != "" && !slices.ContainsFunc(drivers, inDriver) {
			return f.File, f.Line
		}
		if !more {
			return "", 0
		}
	}
}
