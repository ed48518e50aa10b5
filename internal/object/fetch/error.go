package fetch

import (
	"errors"
	"fmt"
)

// ErrStalled means that a read brought no byte for Config.Stall, or that another request
// took longer than it may.
var ErrStalled = errors.New("the store does not answer")

// A GaveUpError is the last of several errors for the same bytes.
type GaveUpError struct {
	Attempts int
	Err      error
}

func (e *GaveUpError) Error() string { return fmt.Sprintf("%v (%d attempts)", e.Err, e.Attempts) }

// Unwrap returns the last error.
func (e *GaveUpError) Unwrap() error { return e.Err }

func asFailure(err error) (Failure, bool) { return errors.AsType[Failure](err) }
