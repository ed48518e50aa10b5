package ladder

import (
	"errors"

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

// decline makes a reason why a route is not used.
func decline(id route.ID, test, evidence, fix string) *route.Decline {
	return &route.Decline{Route: id, Test: test, Evidence: evidence, Fix: fix}
}
