package rm

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// ErrClosed is the error of calls on a closed client, mapper or mapping.
var ErrClosed = os.ErrClosed

// An Unavailable says why memory cannot be mapped on this machine. Callers then
// use another route.
type Unavailable struct {
	Test string // the failed test: "device node", "driver version"
	Err  error  // the cause
	Fix  string // may be empty
}

func (e *Unavailable) Error() string {
	s := e.Test + ": " + e.Err.Error()
	if e.Fix != "" {
		s += " (" + e.Fix + ")"
	}
	return s
}

// Unwrap is the cause.
func (e *Unavailable) Unwrap() error { return e.Err }

func unavailable(test string, err error) error {
	if errors.Is(err, ErrClosed) {
		return err
	}
	return &Unavailable{Test: test, Err: err}
}

// nodeUnavailable adds the fix for a device node that cannot be opened.
func nodeUnavailable(err error) error {
	u := &Unavailable{Test: "device node", Err: err}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		u.Fix = "load the nvidia module; in a container, pass the GPU's device nodes"
	case errors.Is(err, fs.ErrPermission):
		u.Fix = "give the user access to the device node"
	case errors.Is(err, syscall.EIO), errors.Is(err, syscall.ENODEV), errors.Is(err, syscall.ENXIO):
		u.Fix = "check the kernel log for errors of the GPU"
	}
	return u
}
