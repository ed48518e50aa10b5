package nvme

import (
	"errors"
	"fmt"

	abi "github.com/culvert-io/culvert/internal/abi/nvme"
)

// Why a command was not carried out, beside a [Status].
var (
	ErrRemoved = errors.New("the controller was removed")
	ErrFatal   = errors.New("the controller reports a fatal error")
	ErrTimeout = errors.New("the controller does not answer")
	ErrReset   = errors.New("the controller was reset")
	ErrClosed  = errors.New("the queue or controller is closed")
	ErrBusy    = errors.New("commands are in flight")
	ErrFull    = errors.New("the queue is full")
	ErrIdle    = errors.New("no commands are in flight")
	ErrRevoked = errors.New("the memory was freed while it was mapped")

	// ErrUnreachable is what mapping GPU memory fails with where the machine
	// does not let the drive through to it.
	ErrUnreachable = errors.New("the drive does not reach the GPU's memory (an IOMMU or a PCIe bridge between them does not pass requests from device to device: see ACS, and put both below one switch)")
)

// A Status is how a controller answered a command, less the bits beside type
// and code. It is an error when it is not 0.
type Status uint16

// Statuses that callers look for.
const (
	StatusInvalidOpcode     = Status(abi.INVALID_OPCODE)
	StatusInvalidField      = Status(abi.INVALID_FIELD)
	StatusDataTransferError = Status(abi.DATA_TRANSFER_ERROR)
	StatusAborted           = Status(abi.ABORT_REQUESTED)
	StatusQueueDeleted      = Status(abi.ABORTED_SQ_DELETION)
	StatusInvalidNamespace  = Status(abi.INVALID_NAMESPACE)
	StatusPRPOffset         = Status(abi.PRP_OFFSET_INVALID)
	StatusLBAOutOfRange     = Status(abi.LBA_OUT_OF_RANGE)
	StatusWriteFault        = Status(abi.WRITE_FAULT)
	StatusUnrecoveredRead   = Status(abi.UNRECOVERED_READ)
)

func (s Status) Error() string { return abi.Status(s).String() }

// An OpError is a command that failed.
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
