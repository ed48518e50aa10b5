// Package ibverbs has the structs of libibverbs that programs share with it, from
// infiniband/verbs.h. They are the same from rdma-core 28 to 65, on amd64 and arm64.
//
// Objects that the library allocates are only read, and only as far as their layout
// does not depend on the size of a lock.
package ibverbs

import (
	"structs"
	"unsafe"
)

// Offsets of function pointers in struct ibv_context, whose ops start at 8. The verbs of
// the fast path have no symbols: the header has inline functions that call these.
const (
	ContextPollCQ      = 8 + 88
	ContextReqNotifyCQ = 8 + 96
	ContextPostSend    = 8 + 200
	ContextPostRecv    = 8 + 208
)

// SendWR is struct ibv_send_wr. The operation decides what Remote means: for atomics
// it is the address, compare or add, swap, key; otherwise the address and the key.
type SendWR struct {
	_         structs.HostLayout
	ID        uint64
	Next      uintptr
	SGList    uintptr
	NumSGE    int32
	Opcode    uint32
	SendFlags uint32
	Imm       uint32 // in network order
	Remote    [4]uint64
	XRC       uint64
	Pad       [6]uint64 // memory windows and segmentation offload
}

// SetRDMA sets the address and key of a read or write.
func (w *SendWR) SetRDMA(addr uint64, rkey uint32) {
	w.Remote = [4]uint64{addr, uint64(rkey)}
}

// SetAtomic sets the address, operands and key of an atomic.
func (w *SendWR) SetAtomic(addr, compareAdd, swap uint64, rkey uint32) {
	w.Remote = [4]uint64{addr, compareAdd, swap, uint64(rkey)}
}

// RecvWR is struct ibv_recv_wr.
type RecvWR struct {
	_      structs.HostLayout
	ID     uint64
	Next   uintptr
	SGList uintptr
	NumSGE int32
	Pad    uint32
}

// SGE is struct ibv_sge.
type SGE struct {
	_    structs.HostLayout
	Addr uint64
	Len  uint32
	LKey uint32
}

// WC is struct ibv_wc.
type WC struct {
	_         structs.HostLayout
	ID        uint64
	Status    uint32
	Opcode    uint32
	VendorErr uint32
	ByteLen   uint32
	Imm       uint32 // in network order
	QPNum     uint32
	SrcQP     uint32
	Flags     uint32
	PKeyIndex uint16
	SLID      uint16
	SL        uint8
	DLIDBits  uint8
	Pad       [2]byte
}

// MR is struct ibv_mr.
type MR struct {
	_       structs.HostLayout
	Context uintptr
	PD      uintptr
	Addr    uintptr
	Len     uint64
	Handle  uint32
	LKey    uint32
	RKey    uint32
	Pad     uint32
}

// CompChannel is struct ibv_comp_channel.
type CompChannel struct {
	_       structs.HostLayout
	Context uintptr
	FD      int32
	Refs    int32
}

// ContextHead is struct ibv_context up to its lock.
type ContextHead struct {
	_           structs.HostLayout
	Device      uintptr
	Ops         [32]uintptr
	CmdFD       int32
	AsyncFD     int32
	CompVectors int32
}

// QPHead is struct ibv_qp up to its lock.
type QPHead struct {
	_       structs.HostLayout
	Context uintptr
	User    uintptr
	PD      uintptr
	SendCQ  uintptr
	RecvCQ  uintptr
	SRQ     uintptr
	Handle  uint32
	Num     uint32
	State   uint32
	Type    uint32
}

// AsyncEvent is struct ibv_async_event.
type AsyncEvent struct {
	_       structs.HostLayout
	Element uintptr // the queue or queue pair, or the port's number
	Type    uint32
	Pad     uint32
}

// QPCap is struct ibv_qp_cap.
type QPCap struct {
	_                structs.HostLayout
	SendWR, RecvWR   uint32
	SendSGE, RecvSGE uint32
	Inline           uint32
}

// QPInitAttr is struct ibv_qp_init_attr.
type QPInitAttr struct {
	_      structs.HostLayout
	User   uintptr
	SendCQ uintptr
	RecvCQ uintptr
	SRQ    uintptr
	Cap    QPCap
	Type   uint32
	SigAll int32
	Pad    uint32
}

// GlobalRoute is struct ibv_global_route.
type GlobalRoute struct {
	_            structs.HostLayout
	DGID         [16]byte
	FlowLabel    uint32
	SGIDIndex    uint8
	HopLimit     uint8
	TrafficClass uint8
	Pad          [1]byte
}

// AHAttr is struct ibv_ah_attr.
type AHAttr struct {
	_        structs.HostLayout
	GRH      GlobalRoute
	DLID     uint16
	SL       uint8
	SrcBits  uint8
	Rate     uint8
	IsGlobal uint8
	Port     uint8
	Pad      [1]byte
}

// QPAttr is struct ibv_qp_attr.
type QPAttr struct {
	_               structs.HostLayout
	State           uint32
	CurState        uint32
	PathMTU         uint32
	MigState        uint32
	QKey            uint32
	RQPSN           uint32
	SQPSN           uint32
	DestQPN         uint32
	Access          uint32
	Cap             QPCap
	AH              AHAttr
	AltAH           AHAttr
	PKeyIndex       uint16
	AltPKeyIndex    uint16
	SQDNotify       uint8
	SQDraining      uint8
	MaxRDAtomic     uint8
	MaxDestRDAtomic uint8
	MinRNRTimer     uint8
	Port            uint8
	Timeout         uint8
	RetryCount      uint8
	RNRRetry        uint8
	AltPort         uint8
	AltTimeout      uint8
	Pad             [1]byte
	RateLimit       uint32
	Pad2            uint32
}

// GIDEntry is struct ibv_gid_entry.
type GIDEntry struct {
	_       structs.HostLayout
	GID     [16]byte
	Index   uint32
	Port    uint32
	Type    uint32
	IfIndex uint32
}

// PortAttr is struct ibv_port_attr. The exported ibv_query_port leaves what follows
// Flags alone.
type PortAttr struct {
	_              structs.HostLayout
	State          uint32
	MaxMTU         uint32
	ActiveMTU      uint32
	GIDTableLen    int32
	CapFlags       uint32
	MaxMsg         uint32
	BadPKey        uint32
	QKeyViolations uint32
	PKeyTableLen   uint16
	LID            uint16
	SMLID          uint16
	LMC            uint8
	MaxVLs         uint8
	SMSL           uint8
	SubnetTimeout  uint8
	InitType       uint8
	Width          uint8
	Speed          uint8
	PhysState      uint8
	Link           uint8
	Flags          uint8
	CapFlags2      uint16
	Pad            [2]byte
}

// PortRoom is how many bytes to give to a library that may be newer: the struct has
// grown at its end.
const PortRoom = 128

// DeviceAttr is struct ibv_device_attr.
type DeviceAttr struct {
	_            structs.HostLayout
	Firmware     [64]byte
	NodeGUID     uint64
	ImageGUID    uint64
	MaxMRSize    uint64
	PageSizes    uint64
	Vendor       uint32
	Part         uint32
	HWVersion    uint32
	MaxQP        int32
	MaxQPWR      int32
	CapFlags     uint32
	MaxSGE       int32
	MaxSGERead   int32
	MaxCQ        int32
	MaxCQE       int32
	MaxMR        int32
	MaxPD        int32
	MaxRDAtomic  int32
	Pad          int32
	MaxResAtomic int32
	MaxInitRD    int32
	Pad2         int32
	AtomicCap    uint32
	Pad3         [14]int32
	MaxPKeys     uint16
	AckDelay     uint8
	Ports        uint8
	Pad4         uint32
}

// Numbers of verbs.h that package rdma does not have.
const (
	QPTypeRC = 2

	EventCQErr       = 0
	EventDeviceFatal = 8
)

// Sizes that a mistake would change.
var (
	_ [128]byte = [unsafe.Sizeof(SendWR{})]byte{}
	_ [32]byte  = [unsafe.Sizeof(RecvWR{})]byte{}
	_ [16]byte  = [unsafe.Sizeof(SGE{})]byte{}
	_ [48]byte  = [unsafe.Sizeof(WC{})]byte{}
	_ [64]byte  = [unsafe.Sizeof(QPInitAttr{})]byte{}
	_ [144]byte = [unsafe.Sizeof(QPAttr{})]byte{}
	_ [52]byte  = [unsafe.Sizeof(PortAttr{})]byte{}
	_ [232]byte = [unsafe.Sizeof(DeviceAttr{})]byte{}
)
