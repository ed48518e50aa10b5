package rdma

import (
	"cmp"
	"fmt"
	"syscall"

	"github.com/culvert-io/culvert/internal/enum"
)

// A State is the state of a queue pair: enum ibv_qp_state.
type State uint32

// The states, with the numbers of verbs.
const (
	Reset       State = 0
	Init        State = 1 // receives may be posted
	RTR         State = 2 // ready to receive
	RTS         State = 3 // ready to send
	SQD         State = 4
	SQE         State = 5
	ErrState    State = 6 // everything posted is flushed
	UnknownData State = 7
)

var stateNames = [...]string{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR", "UNKNOWN"}

func (s State) String() string { return enum.Name(stateNames[:], s, "state %d") }

// A Mask tells which attributes a call of Modify sets: enum ibv_qp_attr_mask.
type Mask uint32

// The attributes, with the numbers of verbs.
const (
	MaskState           Mask = 0x1
	MaskAccess          Mask = 0x8
	MaskPKey            Mask = 0x10
	MaskPort            Mask = 0x20
	MaskAV              Mask = 0x80
	MaskPathMTU         Mask = 0x100
	MaskTimeout         Mask = 0x200
	MaskRetryCount      Mask = 0x400
	MaskRNRRetry        Mask = 0x800
	MaskRQPSN           Mask = 0x1000
	MaskMaxRDAtomic     Mask = 0x2000
	MaskMinRNRTimer     Mask = 0x8000
	MaskSQPSN           Mask = 0x10000
	MaskMaxDestRDAtomic Mask = 0x20000
	MaskDestQPN         Mask = 0x100000

	// What a reliable connected queue pair needs for each step.
	ToInit = MaskState | MaskPKey | MaskPort | MaskAccess
	ToRTR  = MaskState | MaskAV | MaskPathMTU | MaskDestQPN | MaskRQPSN | MaskMaxDestRDAtomic | MaskMinRNRTimer
	ToRTS  = MaskState | MaskTimeout | MaskRetryCount | MaskRNRRetry | MaskSQPSN | MaskMaxRDAtomic
)

// An AV is the address of a peer: struct ibv_ah_attr.
type AV struct {
	DGID         GID
	SGIDIndex    uint8
	HopLimit     uint8
	TrafficClass uint8
	FlowLabel    uint32
	DLID         uint16
	SL           uint8
	Global       bool // use DGID
	Port         uint8
}

// A QPAttr is the attributes of a queue pair: struct ibv_qp_attr.
type QPAttr struct {
	State           State
	PathMTU         MTU
	RQPSN, SQPSN    uint32 // 24 bits
	DestQPN         uint32 // 24 bits
	Access          Access // what the peer may do
	AV              AV
	PKeyIndex       uint16
	Port            uint8
	MaxRDAtomic     uint8 // reads and atomics in flight, sent
	MaxDestRDAtomic uint8 // the same, received
	MinRNRTimer     uint8 // code of the time a sender waits when no receive is posted
	Timeout         uint8 // 4.096 µs × 2^Timeout; 0 means forever
	RetryCount      uint8 // 0 to 7
	RNRRetry        uint8 // 0 to 7; 7 means forever
}

// QPCaps are the sizes of a queue pair: struct ibv_qp_cap. 0 means a default.
type QPCaps struct {
	SendWR, RecvWR   int // default 128
	SendSGE, RecvSGE int // default 4
	InlineData       int // bytes
}

// A QPConfig describes a reliable connected queue pair.
type QPConfig struct {
	SendCQ, RecvCQ CQ
	Caps           QPCaps
	SignalAll      bool // every send work request makes a completion
}

// WithDefaults fills the sizes that are 0.
func (c QPCaps) WithDefaults() QPCaps {
	c.SendWR = cmp.Or(c.SendWR, 128)
	c.RecvWR = cmp.Or(c.RecvWR, 128)
	c.SendSGE = cmp.Or(c.SendSGE, 4)
	c.RecvSGE = cmp.Or(c.RecvSGE, 4)
	return c
}

// steps are the allowed changes of state with the attributes that each needs.
var steps = map[[2]State]Mask{
	{Reset, Init}: ToInit, {Init, Init}: MaskState,
	{Init, RTR}: ToRTR, {RTR, RTS}: ToRTS, {RTS, RTS}: MaskState,
}

// CheckStep returns an error if a queue pair in state from cannot be modified with the
// attributes in mask. Every state can go to Reset and to ErrState.
func CheckStep(from, to State, mask Mask) error {
	if mask&MaskState == 0 {
		to = from
	}
	if to == Reset || to == ErrState {
		return nil
	}
	need, ok := steps[[2]State{from, to}]
	if !ok {
		return fmt.Errorf("modify queue pair: %v to %v is no step (order: RESET, INIT, RTR, RTS): %w", from, to, syscall.EINVAL)
	}
	if miss := need &^ mask &^ MaskState; miss != 0 {
		return fmt.Errorf("modify queue pair: %v to %v: attributes %#x are missing: %w", from, to, uint32(miss), syscall.EINVAL)
	}
	return nil
}
