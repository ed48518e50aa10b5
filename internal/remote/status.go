package remote

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/culvert-io/culvert/internal/enum"
)

// A Status is how a request ended.
type Status uint16

// The statuses.
const (
	OK        Status = iota
	Denied           // the name may not be used this way
	NotFound         // no such name, handle or upload
	Invalid          // the request contradicts itself or the server's limits
	Busy             // too many clients or files
	Changed          // the file is not the one that was opened
	Access           // the client's memory may not be reached: key, range or rights
	Unreached        // the queue pair failed; the task can be repeated on another
	Storage          // the server could not read or write its file
)

var statusNames = [...]string{"ok", "denied", "not found", "invalid request", "busy", "file changed", "memory access refused", "queue pair failed", "storage failed"}

func (s Status) String() string { return enum.Name(statusNames[:], s, "status %d") }

// An Error is a negative answer.
type Error struct {
	Op     string
	Name   string
	Status Status
	Reason string
}

func (e *Error) Error() string {
	if e.Reason == "" {
		return fmt.Sprintf("%s %s: %s", e.Op, e.Name, e.Status)
	}
	return fmt.Sprintf("%s %s: %s: %s", e.Op, e.Name, e.Status, e.Reason)
}

// Is makes errors.Is work with the errors of package fs.
func (e *Error) Is(target error) bool {
	return e.Status == NotFound && target == fs.ErrNotExist || e.Status == Denied && target == fs.ErrPermission
}

// A LostError is a connection that could not be kept or made again.
type LostError struct {
	Addr  string
	Tries int
	Err   error
}

func (e *LostError) Error() string {
	return fmt.Sprintf("connection to %s: %v (%d attempts)", e.Addr, e.Err, e.Tries)
}

// Unwrap is the last failure.
func (e *LostError) Unwrap() error { return e.Err }

// refusal is an error that the server sends to the client.
type refusal struct {
	status Status
	reason string
}

func (r *refusal) Error() string { return r.status.String() + ": " + r.reason }

func refuse(s Status, format string, args ...any) error {
	return &refusal{s, fmt.Sprintf(format, args...)}
}

// answer is the reply to a request that failed.
func answer(id uint64, err error) reply {
	if r, ok := errors.AsType[*refusal](err); ok {
		return reply{ID: id, Status: r.status, Reason: r.reason}
	}
	return reply{ID: id, Status: Storage, Reason: err.Error()}
}
