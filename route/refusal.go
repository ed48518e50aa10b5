package route

import "errors"

// A Refusal is the error of a route that took a request and was then told by the
// kernel or a driver that it cannot be done this way. From then on the route's
// Takes declines such requests, and so the next rung gets this one.
type Refusal struct {
	Why *Decline
	Err error
}

func (r *Refusal) Error() string { return r.Why.String() }

// Unwrap is what the kernel said.
func (r *Refusal) Unwrap() error { return r.Err }

// refused reports whether err is a refusal, after which the ops are to be tried
// again, and clears their receipts.
func refused(err error, res []Receipt) bool {
	if _, ok := errors.AsType[*Refusal](err); err == nil || !ok {
		return false
	}
	for i := range res {
		res[i] = Receipt{}
	}
	return true
}
