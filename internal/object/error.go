package object

import (
	"fmt"
	"io/fs"
	"time"

	"github.com/culvert-io/culvert/internal/object/fetch"
)

// Statuses of HTTP. Package net/http would become part of every program that can load
// a model.
const (
	statusBadRequest         = 400
	statusUnauthorized       = 401
	statusForbidden          = 403
	statusNotFound           = 404
	statusMethodNotAllowed   = 405
	statusRequestTimeout     = 408
	statusPreconditionFailed = 412
	statusTooManyRequests    = 429
	statusNotImplemented     = 501
	statusServiceUnavailable = 503
)

// An Error is a request that a store refused or answered wrongly.
type Error struct {
	Op     string // "read", "list", ...
	Object string // URL without secrets
	Status int    // of HTTP; 0 if there was no answer
	Code   string // of the store, such as NoSuchBucket; "" if it has none
	Detail string // what is wrong, as a sentence
	Fix    string
	After  time.Duration // the store wants to be left alone for this long
	Final  bool          // asking again gives the same answer, whatever the status
	Again  bool          // asking again may help, whatever the status
	Denied bool          // the store rejects the credentials, whatever the status
	Err    error         // may be nil
}

func (e *Error) Error() string {
	text := fmt.Sprintf("%s %s", e.Op, e.Object)
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	if e.Status != 0 {
		text += fmt.Sprintf(" (HTTP %d", e.Status)
		if e.Code != "" {
			text += " " + e.Code
		}
		text += ")"
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	if e.Fix != "" {
		text += " (fix: " + e.Fix + ")"
	}
	return text
}

// Failed is the error of a request. An Error gets its operation and its object.
func Failed(op, object string, err error) error {
	e, ok := err.(*Error)
	if !ok {
		return &Error{Op: op, Object: object, Err: err}
	}
	c := *e // others may have it, too
	c.Op, c.Object = op, object
	return &c
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is makes errors.Is work as for files.
func (e *Error) Is(target error) bool {
	switch target {
	case fs.ErrNotExist:
		return e.Status == statusNotFound && !e.Denied
	case fs.ErrPermission:
		return e.Denied || e.Status == statusForbidden || e.Status == statusUnauthorized
	case fs.ErrExist, ErrChanged:
		return e.Status == statusPreconditionFailed || e.Code == "ConditionalRequestConflict"
	}
	return false
}

// Retry says whether to make the request again: what the store could not do now, it
// may be able to do later; what it refused, it refuses again.
func (e *Error) Retry() fetch.Retry {
	switch {
	case e.Final, e.Status == statusNotImplemented:
	case e.Status == statusServiceUnavailable, e.Status == statusTooManyRequests:
		return fetch.Retry{Slow: true, After: e.After}
	case e.Status >= 500, e.Status == statusRequestTimeout, e.Status == 0, e.Again:
		return fetch.Retry{After: e.After}
	}
	return fetch.Retry{Never: true}
}

// noConditions reports whether a conditional write may have failed because the store has
// none. Other requests that are refused in this way fail again without a condition.
func (e *Error) noConditions() bool {
	switch e.Status {
	case statusNotImplemented, statusMethodNotAllowed:
		return true
	case statusBadRequest:
		return e.Code == "" || e.Code == "NotImplemented" || e.Code == "InvalidArgument" || e.Code == "InvalidRequest"
	}
	return false
}

// A ProtocolError is an answer that is not what was asked for, from a store that does
// not follow the protocol or from something between. Asking again may help.
type ProtocolError struct{ Detail string }

func (e *ProtocolError) Error() string { return e.Detail }
