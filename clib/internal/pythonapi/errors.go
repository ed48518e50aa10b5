package pythonapi

import (
	"context"
	"errors"
	"io/fs"
	"syscall"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/tensor"
)

// A Failure is the answer to a call that failed. Python raises the exception of its
// kind.
type Failure struct {
	Error string `json:"error"`
	Kind  string `json:"kind"`
	Errno int    `json:"errno,omitempty"`
}

// Explain sorts an error into the kinds that callers distinguish.
func Explain(err error) Failure {
	f := Failure{Error: err.Error(), Kind: "other"}
	_, format := errors.AsType[*tensor.FormatError](err)
	code, driver := errors.AsType[gpu.Code](err)
	errno, system := errors.AsType[syscall.Errno](err)
	_, request := errors.AsType[requestError](err)
	switch {
	case errors.Is(err, context.Canceled):
		f.Kind = "cancelled"
	case errors.Is(err, tensor.ErrChecksum):
		f.Kind = "checksum"
	case format:
		f.Kind = "format"
	case code == gpu.ErrOutOfMemory:
		f.Kind = "memory"
	case driver:
		f.Kind = "gpu"
	case system:
		f.Kind, f.Errno = "os", int(errno)
	case errors.Is(err, fs.ErrNotExist): // of a store, which has no errno
		f.Kind, f.Errno = "os", int(syscall.ENOENT)
	case errors.Is(err, fs.ErrPermission):
		f.Kind, f.Errno = "os", int(syscall.EACCES)
	case request:
		f.Kind = "request"
	}
	return f
}

// errNoAddress reports host memory that a framework only pretends to have, as torch does
// under FakeTensorMode.
var errNoAddress = errors.New("its host memory has address 0")

// A requestError is about what was requested: a name, a slice, a selection.
type requestError struct{ error }

func (e requestError) Unwrap() error { return e.error }
