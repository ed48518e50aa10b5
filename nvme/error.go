package nvme

import (
	"errors"
	"fmt"

	abi "github.com/culvert-io/culvert/internal/abi/nvme"
)

// Reasons of failed commands, besides a [Status].
var (
	ErrRemoved = errors.New("controller was removed")
	ErrFatal   = errors.New("controller reports a fatal error")
	ErrTimeout = errors.New("controller does not respond")
	ErrReset   = errors.New("controller was reset")
	ErrClosed  = errors.New("already closed")
	ErrBusy    = errors.New("commands are in flight")
	ErrFull    = errors.New("queue is full")
	ErrIdle    = errors.New("no commands are in flight")
	ErrRevoked = errors.New("memory was freed while it was mapped")

	// ErrUnreachable means that the machine blocks DMA between drive and GPU.
	ErrUnreachable = errors.New("drive cannot reach GPU memory (IOMMU or PCIe bridge blocks peer-to-peer: check ACS, put both below one switch)")
)

// A Status is the type and code of a completion's status. Values other than 0
// are errors.
type Status uint16

// Statuses that callers may test for.
const (
	StatusDataTransferError = Status(abi.DATA_TRANSFER_ERROR)
	StatusAborted           = Status(abi.ABORT_REQUESTED)
	StatusQueueDeleted      = Status(abi.ABORTED_SQ_DELETION)
	StatusLBAOutOfRange     = Status(abi.LBA_OUT_OF_RANGE)
	StatusUnrecoveredRead   = Status(abi.UNRECOVERED_READ)
)

func (s Status) Error() string { return abi.Status(s).String() }

// An OpError is a failed command.
type OpError struct {
	Controller string
	Op         string // "read", "identify"
	NSID       uint32 // 0 for commands without a namespace
	LBA        uint64
	Blocks     uint32 // 0 for commands without blocks
	Err        error  // a Status, or one of the errors above
}

func (e *OpError) Error() string {
	what := e.Op
	if e.Blocks > 0 {
		what = fmt.Sprintf("%s of %d blocks at %d", e.Op, e.Blocks, e.LBA)
	}
	if e.NSID > 0 {
		what += fmt.Sprintf(" of namespace %d", e.NSID)
	}
	return fmt.Sprintf("nvme %s: %s: %v", e.Controller, what, e.Err)
}

// Unwrap gives the cause to errors.Is.
func (e *OpError) Unwrap() error { return e.Err }
