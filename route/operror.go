package route

import "fmt"

// An OpError is why an op failed, with the file's name apart: whoever has named it
// already takes the cause alone.
type OpError struct {
	Dir  Dir
	File string
	Err  error
}

func (e *OpError) Error() string { return fmt.Sprintf("%s %s: %v", e.Dir, e.File, e.Err) }

// Unwrap is the cause.
func (e *OpError) Unwrap() error { return e.Err }

// fail is the error of an op. A route that has let another do it names the file once.
func (op *Op) fail(err error) error {
	if inner, ok := err.(*OpError); ok {
		return inner
	}
	return &OpError{op.Dir, op.File.Name, err}
}

// failAt is the error of an op at an offset of the file; by says by what means, where
// there is more to say than the route's name.
func (op *Op) failAt(off int64, by string, err error) error {
	if inner, ok := err.(*OpError); ok {
		return inner
	}
	return op.fail(fmt.Errorf("at offset %d%s: %w", off, by, err))
}
