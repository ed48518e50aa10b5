package nvme

import (
	"structs"
	"unsafe"
)

// Opcodes of admin commands.
const (
	ADMIN_DELETE_SQ    = 0x00
	ADMIN_CREATE_SQ    = 0x01
	ADMIN_DELETE_CQ    = 0x04
	ADMIN_CREATE_CQ    = 0x05
	ADMIN_IDENTIFY     = 0x06
	ADMIN_ABORT        = 0x08
	ADMIN_SET_FEATURES = 0x09
	ADMIN_GET_FEATURES = 0x0a
	ADMIN_ASYNC_EVENT  = 0x0c
	ADMIN_KEEP_ALIVE   = 0x18
)

// Opcodes of the NVM command set.
const (
	NVM_FLUSH        = 0x00
	NVM_WRITE        = 0x01
	NVM_READ         = 0x02
	NVM_WRITE_ZEROES = 0x08
)

// A Command is a submission queue entry.
type Command struct {
	_      structs.HostLayout
	Opcode uint8
	Flags  uint8 // FUSE in bits 1:0, PSDT in bits 7:6
	CID    uint16
	NSID   uint32
	CDW2   uint32
	CDW3   uint32
	MPTR   uint64
	PRP1   uint64
	PRP2   uint64
	CDW10  uint32
	CDW11  uint32
	CDW12  uint32
	CDW13  uint32
	CDW14  uint32
	CDW15  uint32
}

// Fields of Command.Flags.
const (
	FLAGS_FUSE_MASK = 3 << 0
	FLAGS_PSDT_MASK = 3 << 6
)

// A Completion is a completion queue entry.
type Completion struct {
	_    structs.HostLayout
	DW0  uint32 // the command's result
	DW1  uint32
	SQHD uint16 // Submission Queue Head Pointer
	SQID uint16
	DW3  uint32 // CID, phase tag and status: see MakeDW3
}

// CID is the command id in dword 3 of a completion.
func CID(dw3 uint32) uint16 { return uint16(dw3) }

// Phase is the phase tag in dword 3 of a completion.
func Phase(dw3 uint32) bool { return dw3>>16&1 != 0 }

// StatusOf is the status in dword 3 of a completion.
func StatusOf(dw3 uint32) Status { return Status(dw3 >> 17) }

// MakeDW3 is dword 3 of a completion.
func MakeDW3(cid uint16, phase bool, s Status) uint32 {
	dw3 := uint32(cid) | uint32(s)<<17
	if phase {
		dw3 |= 1 << 16
	}
	return dw3
}

// Sizes of queue entries in bytes.
const (
	CommandSize    = 64
	CompletionSize = 16
)

var (
	_ [CommandSize]byte    = [unsafe.Sizeof(Command{})]byte{}
	_ [CompletionSize]byte = [unsafe.Sizeof(Completion{})]byte{}
)

// Fields of dwords 10 and 11 of Create I/O Completion Queue and Create I/O
// Submission Queue.
const (
	QUEUE_SIZE_SHIFT = 16 // of the size, less one, in dword 10
	QUEUE_PC         = 1 << 0
	CQ_IEN           = 1 << 1
	CQ_IV_SHIFT      = 16
	SQ_CQID_SHIFT    = 16
)

// CNS values of Identify.
const (
	CNS_NAMESPACE        = 0x00
	CNS_CONTROLLER       = 0x01
	CNS_ACTIVE_NAMESPACE = 0x02 // list of namespace ids greater than NSID
	CNS_NAMESPACE_IDS    = 0x03 // list of identifiers of a namespace
)

// NVM_FUA in dword 12 of a Write completes it when the data is durable.
const NVM_FUA = 1 << 30

// Feature identifiers.
const (
	FEAT_ARBITRATION = 0x01
	FEAT_VWC         = 0x06 // Volatile Write Cache
	FEAT_NUM_QUEUES  = 0x07
	FEAT_KATO        = 0x0f // Keep Alive Timer, in milliseconds
)

// ABORT_NOT_DONE in dword 0 of the completion of Abort means that the command
// was not aborted.
const ABORT_NOT_DONE = 1 << 0

// NSID_ALL means all namespaces.
const NSID_ALL = 1<<32 - 1

// CreateCQ is the command that creates completion queue id with n entries at
// prp. A vector below 0 means no interrupts.
func CreateCQ(id uint16, n uint32, prp uint64, vector int) Command {
	c := Command{Opcode: ADMIN_CREATE_CQ, PRP1: prp, CDW10: (n-1)<<QUEUE_SIZE_SHIFT | uint32(id), CDW11: QUEUE_PC}
	if vector >= 0 {
		c.CDW11 |= CQ_IEN | uint32(vector)<<CQ_IV_SHIFT
	}
	return c
}

// CreateSQ is the command that creates submission queue id, whose completion
// queue has the same id, with n entries at prp.
func CreateSQ(id uint16, n uint32, prp uint64) Command {
	return Command{
		Opcode: ADMIN_CREATE_SQ, PRP1: prp, CDW10: (n-1)<<QUEUE_SIZE_SHIFT | uint32(id),
		CDW11: QUEUE_PC | uint32(id)<<SQ_CQID_SHIFT,
	}
}

// Blocks is a command of the NVM command set for n blocks from lba.
func Blocks(opcode uint8, nsid uint32, lba uint64, n uint32) Command {
	return Command{Opcode: opcode, NSID: nsid, CDW10: uint32(lba), CDW11: uint32(lba >> 32), CDW12: n - 1}
}
