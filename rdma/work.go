package rdma

import "github.com/culvert-io/culvert/internal/enum"

// An Opcode is the operation of a send work request: enum ibv_wr_opcode.
type Opcode uint32

// The operations, with the numbers of verbs.
const (
	OpWrite    Opcode = 0
	OpWriteImm Opcode = 1 // consumes a receive of the peer
	OpSend     Opcode = 2
	OpSendImm  Opcode = 3
	OpRead     Opcode = 4
	OpCmpSwap  Opcode = 5 // 8 bytes, aligned; the old value goes to the SGE
	OpFetchAdd Opcode = 6
)

var opcodeNames = [...]string{"WRITE", "WRITE_WITH_IMM", "SEND", "SEND_WITH_IMM", "READ", "CMP_SWAP", "FETCH_ADD"}

func (o Opcode) String() string { return enum.Name(opcodeNames[:], o, "unknown operation %d") }

// Valid reports whether o is an operation of this package.
func (o Opcode) Valid() bool { return o <= OpFetchAdd }

// Atomic reports whether o is an atomic operation.
func (o Opcode) Atomic() bool { return o == OpCmpSwap || o == OpFetchAdd }

// Responds reports whether the peer answers with data.
func (o Opcode) Responds() bool { return o == OpRead || o.Atomic() }

// Receives reports whether the operation consumes a receive of the peer.
func (o Opcode) Receives() bool { return o == OpSend || o == OpSendImm || o == OpWriteImm }

// HasImm reports whether the operation has immediate data.
func (o Opcode) HasImm() bool { return o == OpWriteImm || o == OpSendImm }

// WC is the opcode in the completion of o.
func (o Opcode) WC() WCOpcode {
	return [...]WCOpcode{WCWrite, WCWrite, WCSend, WCSend, WCRead, WCCmpSwap, WCFetchAdd}[o]
}

// SendFlags are the options of a send work request: enum ibv_send_flags.
type SendFlags uint32

// The flags, with the numbers of verbs.
const (
	Fence     SendFlags = 1 // start after all earlier reads and atomics
	Signaled  SendFlags = 2 // make a completion on success, too
	Solicited SendFlags = 4 // wake a peer that waits for solicited events
	Inline    SendFlags = 8 // copy the data during the post; keys are not checked
)

// An SGE is a local range of a work request: struct ibv_sge.
type SGE struct {
	Addr uint64
	Len  uint32
	LKey uint32
}

// A SendWR is a work request of the send queue.
type SendWR struct {
	ID    uint64
	Op    Opcode
	Flags SendFlags
	SGE   []SGE
	Imm   uint32 // in host order; on the wire in network order

	RemoteAddr uint64
	RKey       uint32

	CompareAdd uint64 // the value to compare with, or to add
	Swap       uint64
}

// A RecvWR is a work request of the receive queue.
type RecvWR struct {
	ID  uint64
	SGE []SGE
}

// A WCOpcode is the operation of a completion: enum ibv_wc_opcode.
type WCOpcode uint32

// The operations of completions, with the numbers of verbs.
const (
	WCSend     WCOpcode = 0
	WCWrite    WCOpcode = 1
	WCRead     WCOpcode = 2
	WCCmpSwap  WCOpcode = 3
	WCFetchAdd WCOpcode = 4
	WCRecv     WCOpcode = 128
	WCRecvImm  WCOpcode = 129 // a write with immediate data arrived
)

// WCFlags tell which fields of a completion are valid: enum ibv_wc_flags.
type WCFlags uint32

// WithImm means that Imm is valid.
const WithImm WCFlags = 2

// A WC is a work completion. If Status is not Success, only ID, Status, QPNum and
// VendorErr are valid.
type WC struct {
	ID        uint64
	Status    Status
	Op        WCOpcode
	VendorErr uint32
	Len       uint32 // bytes received, read or exchanged
	Imm       uint32
	QPNum     uint32
	SrcQP     uint32 // of a received message; 0 if the device does not tell
	Flags     WCFlags
}

// Err is nil for a success, and a *CompletionError otherwise.
func (w WC) Err() error {
	if w.Status == Success {
		return nil
	}
	return &CompletionError{w}
}
