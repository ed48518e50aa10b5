package ladder

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/route"
)

// A RejectedError is the error of a route that accepted a request and was then told
// by the kernel or a driver that it cannot be done this way. From then on the route
// declines such requests, so the next route gets this one.
type RejectedError struct {
	Why *route.Decline
	Err error
}

func (r *RejectedError) Error() string { return r.Why.String() }

// Unwrap returns the kernel's answer.
func (r *RejectedError) Unwrap() error { return r.Err }

func isRejected(err error) bool {
	_, ok := errors.AsType[*RejectedError](err)
	return ok
}

// cause is the text of an error that becomes the evidence of another reason: of a rejection
// without its route, test and fix.
func cause(err error) string {
	if r, ok := errors.AsType[*RejectedError](err); ok {
		return r.Why.Evidence
	}
	return err.Error()
}

// An afterError is the error of a batch whose first ops were moved. They must not be moved
// again: a write that was rejected may have left bytes in the file that a read before it
// would find.
type afterError struct {
	moved int
	error
}

// Unwrap returns the error of the op that follows those.
func (a *afterError) Unwrap() error { return a.error }

// movedBefore is how many ops of a batch were moved before an error.
func movedBefore(err error) int {
	if a, ok := errors.AsType[*afterError](err); ok {
		return a.moved
	}
	return 0
}

// toNextRoute is the error of ops that another route takes this time, after one that may be
// this route's own.
func toNextRoute(id route.ID, ops []Op, test string, err error) error {
	d := decline(id, test, err.Error(), "")
	passOn(ops, d)
	return &RejectedError{d, err}
}

// ambiguous are the errors with which drives and modules also answer failures of their way to
// GPU memory.
var ambiguous = []unix.Errno{unix.EIO, unix.EINVAL, unix.EBUSY, unix.ENOMEM, unix.EAGAIN, unix.EFAULT, unix.EOPNOTSUPP}

// ambiguousToNextRoute is toNextRoute after one of them, unless the route is required: the next
// route knows whether the drive has failed.
func ambiguousToNextRoute(id route.ID, ops []Op, err error) error {
	errno, ok := errors.AsType[unix.Errno](err)
	if ops[0].strict || !ok || !slices.Contains(ambiguous, errno) || isRejected(err) || errors.Is(err, route.ErrFreed) {
		return err
	}
	return toNextRoute(id, ops, "input/output", err)
}

// decline makes a reason why a route is not used.
func decline(id route.ID, test, evidence, fix string) *route.Decline {
	return &route.Decline{Route: id, Test: test, Evidence: evidence, Fix: fix}
}
