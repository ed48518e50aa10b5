package rdma

import (
	"fmt"

	"github.com/culvert-io/culvert/internal/enum"
)

// A Status is the result of a work request: enum ibv_wc_status.
type Status uint32

// The statuses, with the numbers of verbs.
const (
	Success        Status = 0
	LocLenErr      Status = 1  // the message does not fit the posted buffer
	LocQPOpErr     Status = 2  // the queue pair cannot do this
	LocEECOpErr    Status = 3  // reliable datagrams; not used
	LocProtErr     Status = 4  // a local key, range or right is wrong
	FlushErr       Status = 5  // the queue pair failed before this request
	MWBindErr      Status = 6  // memory windows; not used
	BadRespErr     Status = 7  // the peer's answer makes no sense
	LocAccessErr   Status = 8  // a local access failed while the peer's write arrived
	RemInvReqErr   Status = 9  // the peer finds the request invalid
	RemAccessErr   Status = 10 // the peer's key, range or rights forbid it
	RemOpErr       Status = 11 // the peer could not do it
	RetryExcErr    Status = 12 // the peer does not answer
	RNRRetryExcErr Status = 13 // the peer has no receive buffer posted
	LocRDDViolErr  Status = 14
	RemInvRDReqErr Status = 15
	RemAbortErr    Status = 16
	InvEECNErr     Status = 17
	InvEECStateErr Status = 18
	FatalErr       Status = 19 // the device failed
	RespTimeoutErr Status = 20
	GeneralErr     Status = 21
)

var statusNames = [...]string{
	"success", "local length error", "local QP operation error", "local EE context operation error",
	"local protection error", "Work Request Flushed Error", "memory management operation error", "bad response error",
	"local access error", "remote invalid request error", "remote access error", "remote operation error",
	"transport retry counter exceeded", "RNR retry counter exceeded", "local RDD violation error",
	"remote invalid RD request", "aborted error", "invalid EE context number", "invalid EE context state",
	"fatal error", "response timeout error", "general error",
}

// String is the text of ibv_wc_status_str.
func (s Status) String() string { return enum.Name(statusNames[:], s, "unknown status %d") }

// Error makes a status an error. Success must not be used as one: see [WC.Err].
func (s Status) Error() string { return s.String() }

// hints tell what to look at, by status.
var hints = map[Status]string{
	LocLenErr:      "post a receive buffer as large as the peer's message",
	LocProtErr:     "check the local key, its range and its rights (a receive or a read needs LocalWrite)",
	FlushErr:       "look for the first failed request of this queue pair",
	RemInvReqErr:   "check that the peer's receive buffer is large enough and that the queue pair allows the operation",
	RemAccessErr:   "check the remote key, its range and its rights, and that the peer has not freed or deregistered the memory",
	RetryExcErr:    "check that the peer is alive, that both use the right GID, and the path between them",
	RNRRetryExcErr: "let the peer post receives earlier, or raise RNRRetry",
}

// A CompletionError is a work request that failed.
type CompletionError struct{ WC WC }

func (e *CompletionError) Error() string {
	s := fmt.Sprintf("work request %d on QP %#x: %s (status %d)", e.WC.ID, e.WC.QPNum, e.WC.Status, uint32(e.WC.Status))
	if h := hints[e.WC.Status]; h != "" {
		s += " (fix: " + h + ")"
	}
	return s
}

// Unwrap is the status.
func (e *CompletionError) Unwrap() error { return e.WC.Status }
