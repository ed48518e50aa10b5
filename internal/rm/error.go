package rm

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// ErrClosed is returned by calls on a client, object, mapper or window that was
// closed.
var ErrClosed = os.ErrClosed

// An Unavailable says why memory cannot be mapped on this machine. It is an
// answer, not a failure: the caller takes another way.
type Unavailable struct {
	Test string // which test failed: "device node", "driver version"
	Err  error  // what was seen
	Fix  string // what would change it; may be empty
}

func (e *Unavailable) Error() string {
	s := e.Test + ": " + e.Err.Error()
	if e.Fix != "" {
		s += " (" + e.Fix + ")"
	}
	return s
}

// Unwrap gives what was seen to errors.Is and errors.As.
func (e *Unavailable) Unwrap() error { return e.Err }

func unavailable(test string, err error) error {
	if errors.Is(err, ErrClosed) {
		return err
	}
	return &Unavailable{Test: test, Err: err}
}

// nodeUnavailable adds what to do about a node that does not open.
func nodeUnavailable(err error) error {
	u := &Unavailable{Test: "device node", Err: err}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		u.Fix = "load the nvidia module; in a container, pass the GPU's nodes in"
	case errors.Is(err, fs.ErrPermission):
		u.Fix = "give the user access to the node"
	case errors.Is(err, syscall.EIO), errors.Is(err, syscall.ENODEV), errors.Is(err, syscall.ENXIO):
		u.Fix = "see what the kernel log says about the GPU"
	}
	return u
}
