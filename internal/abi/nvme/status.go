package nvme

import "fmt"

// A Status is the status field of a completion: status code in bits 7:0, its
// type in bits 10:8, More in bit 13, Do Not Retry in bit 14.
type Status uint16

// Generic status (type 0).
const (
	SUCCESS                Status = 0x000
	INVALID_OPCODE         Status = 0x001
	INVALID_FIELD          Status = 0x002
	CID_CONFLICT           Status = 0x003
	DATA_TRANSFER_ERROR    Status = 0x004
	INTERNAL_ERROR         Status = 0x006
	ABORT_REQUESTED        Status = 0x007
	ABORTED_SQ_DELETION    Status = 0x008
	INVALID_NAMESPACE      Status = 0x00b
	COMMAND_SEQUENCE_ERROR Status = 0x00c
	PRP_OFFSET_INVALID     Status = 0x013
	LBA_OUT_OF_RANGE       Status = 0x080
	CAPACITY_EXCEEDED      Status = 0x081
)

// Command specific status (type 1).
const (
	CQ_INVALID                 Status = 0x100
	INVALID_QUEUE_ID           Status = 0x101
	INVALID_QUEUE_SIZE         Status = 0x102
	ABORT_LIMIT_EXCEEDED       Status = 0x103
	ASYNC_EVENT_LIMIT_EXCEEDED Status = 0x105
	INVALID_INTERRUPT_VECTOR   Status = 0x108
	INVALID_QUEUE_DELETION     Status = 0x10c
)

// Media and data integrity errors (type 2).
const (
	WRITE_FAULT      Status = 0x280
	UNRECOVERED_READ Status = 0x281
)

// Bits beside code and type.
const (
	STATUS_CODE_MASK Status = 0x7ff
	STATUS_MORE      Status = 1 << 13
	STATUS_DNR       Status = 1 << 14 // Do Not Retry
)

// Code is the status without the bits beside code and type.
func (s Status) Code() Status { return s & STATUS_CODE_MASK }

// DNR reports whether the same command would fail again.
func (s Status) DNR() bool { return s&STATUS_DNR != 0 }

var statusNames = map[Status]string{
	SUCCESS:                    "Successful Completion",
	INVALID_OPCODE:             "Invalid Command Opcode",
	INVALID_FIELD:              "Invalid Field in Command",
	CID_CONFLICT:               "Command ID Conflict",
	DATA_TRANSFER_ERROR:        "Data Transfer Error",
	INTERNAL_ERROR:             "Internal Error",
	ABORT_REQUESTED:            "Command Abort Requested",
	ABORTED_SQ_DELETION:        "Command Aborted due to SQ Deletion",
	INVALID_NAMESPACE:          "Invalid Namespace or Format",
	COMMAND_SEQUENCE_ERROR:     "Command Sequence Error",
	PRP_OFFSET_INVALID:         "PRP Offset Invalid",
	LBA_OUT_OF_RANGE:           "LBA Out of Range",
	CAPACITY_EXCEEDED:          "Capacity Exceeded",
	CQ_INVALID:                 "Completion Queue Invalid",
	INVALID_QUEUE_ID:           "Invalid Queue Identifier",
	INVALID_QUEUE_SIZE:         "Invalid Queue Size",
	ABORT_LIMIT_EXCEEDED:       "Abort Command Limit Exceeded",
	ASYNC_EVENT_LIMIT_EXCEEDED: "Asynchronous Event Request Limit Exceeded",
	INVALID_INTERRUPT_VECTOR:   "Invalid Interrupt Vector",
	INVALID_QUEUE_DELETION:     "Invalid Queue Deletion",
	WRITE_FAULT:                "Write Fault",
	UNRECOVERED_READ:           "Unrecovered Read Error",
}

var statusTypes = map[Status]string{0: "generic", 1: "command specific", 2: "media", 3: "path", 7: "vendor specific"}

func (s Status) String() string {
	code := s.Code()
	name, ok := statusNames[code]
	if !ok {
		if name, ok = statusTypes[code>>8]; !ok {
			name = "reserved"
		}
		name += " status"
	}
	text := fmt.Sprintf("%s (%#03x)", name, uint16(code))
	if s.DNR() {
		text += ", do not retry"
	}
	return text
}
