// Package rdmacm has the commands of /dev/infiniband/rdma_cm, the kernel's connection
// manager of RDMA, from rdma/rdma_user_cm.h. A command is a header and a struct, written
// in one call; answers go to the address that the struct names.
package rdmacm

import "structs"

// Device is the node.
const Device = "/dev/infiniband/rdma_cm"

// The commands.
const (
	CREATE_ID     = 0
	DESTROY_ID    = 1
	BIND_IP       = 2
	RESOLVE_IP    = 3
	RESOLVE_ROUTE = 4
	CONNECT       = 6
	LISTEN        = 7
	ACCEPT        = 8
	REJECT        = 9
	DISCONNECT    = 10
	INIT_QP_ATTR  = 11
	GET_EVENT     = 12
	MIGRATE_ID    = 18
	QUERY         = 19
)

// PS_TCP is the port space of reliable connections.
const PS_TCP = 0x106

// The events.
const (
	EVENT_ADDR_RESOLVED    = 0
	EVENT_ADDR_ERROR       = 1
	EVENT_ROUTE_RESOLVED   = 2
	EVENT_ROUTE_ERROR      = 3
	EVENT_CONNECT_REQUEST  = 4
	EVENT_CONNECT_RESPONSE = 5
	EVENT_CONNECT_ERROR    = 6
	EVENT_UNREACHABLE      = 7
	EVENT_REJECTED         = 8
	EVENT_ESTABLISHED      = 9
	EVENT_DISCONNECTED     = 10
	EVENT_DEVICE_REMOVAL   = 11
	EVENT_TIMEWAIT_EXIT    = 15
)

// Header is struct rdma_ucm_cmd_hdr.
type Header struct {
	_   structs.HostLayout
	Cmd uint32
	In  uint16
	Out uint16
}

// CreateID is struct rdma_ucm_create_id.
type CreateID struct {
	_        structs.HostLayout
	UID      uint64
	Response uint64
	PS       uint16
	QPType   uint8
	Pad      [5]byte
}

// ID is an answer with a number: struct rdma_ucm_create_id_resp, and
// rdma_ucm_destroy_id_resp.
type ID struct {
	_  structs.HostLayout
	ID uint32
}

// DestroyID is struct rdma_ucm_destroy_id.
type DestroyID struct {
	_        structs.HostLayout
	Response uint64
	ID       uint32
	Pad      uint32
}

// Sockaddr is struct sockaddr_in6, or sockaddr_in in its first bytes.
type Sockaddr [28]byte

// BindIP is struct rdma_ucm_bind_ip.
type BindIP struct {
	_        structs.HostLayout
	Response uint64
	Addr     Sockaddr
	ID       uint32
}

// ResolveIP is struct rdma_ucm_resolve_ip.
type ResolveIP struct {
	_       structs.HostLayout
	Src     Sockaddr
	Dst     Sockaddr
	ID      uint32
	Timeout uint32 // ms
}

// ResolveRoute is struct rdma_ucm_resolve_route.
type ResolveRoute struct {
	_       structs.HostLayout
	ID      uint32
	Timeout uint32 // ms
}

// ConnParam is struct rdma_ucm_conn_param.
type ConnParam struct {
	_                  structs.HostLayout
	QPNum              uint32
	QKey               uint32
	Private            [256]byte
	PrivateLen         uint8
	SRQ                uint8
	ResponderResources uint8
	InitiatorDepth     uint8
	FlowControl        uint8
	RetryCount         uint8
	RNRRetryCount      uint8
	Valid              uint8
}

// Connect is struct rdma_ucm_connect.
type Connect struct {
	_     structs.HostLayout
	Param ConnParam
	ID    uint32
	Pad   uint32
	ECE   [2]uint32
}

// Listen is struct rdma_ucm_listen.
type Listen struct {
	_       structs.HostLayout
	ID      uint32
	Backlog uint32
}

// Reject is struct rdma_ucm_reject.
type Reject struct {
	_          structs.HostLayout
	ID         uint32
	PrivateLen uint8
	Reason     uint8
	Pad        [2]byte
	Private    [256]byte
}

// REJECT_CONSUMER is the reason of a listener that refuses for reasons of its own.
const REJECT_CONSUMER = 28

// MigrateID is struct rdma_ucm_migrate_id. It is answered with a number of events.
type MigrateID struct {
	_        structs.HostLayout
	Response uint64
	ID       uint32
	FD       uint32
}

// Accept is struct rdma_ucm_accept.
type Accept struct {
	_     structs.HostLayout
	UID   uint64
	Param ConnParam
	ID    uint32
	Pad   uint32
	ECE   [2]uint32
}

// Disconnect is struct rdma_ucm_disconnect.
type Disconnect struct {
	_  structs.HostLayout
	ID uint32
}

// InitQPAttr is struct rdma_ucm_init_qp_attr.
type InitQPAttr struct {
	_        structs.HostLayout
	Response uint64
	ID       uint32
	State    uint32
}

// QUERY_ADDR is the option of Query that asks for the addresses and the device.
const QUERY_ADDR = 0

// Query is struct rdma_ucm_query.
type Query struct {
	_        structs.HostLayout
	Response uint64
	ID       uint32
	Option   uint32
}

// Addresses is struct rdma_ucm_query_addr_resp.
type Addresses struct {
	_        structs.HostLayout
	NodeGUID uint64 // in network order
	Port     uint8
	Pad      uint8
	PKey     uint16
	SrcSize  uint16
	DstSize  uint16
	Src      [128]byte
	Dst      [128]byte
	Index    uint32
	Pad2     uint32
}

// GetEvent is struct rdma_ucm_get_event.
type GetEvent struct {
	_        structs.HostLayout
	Response uint64
}

// Event is struct rdma_ucm_event_resp, whose union is as large as its parameters for
// datagrams.
type Event struct {
	_      structs.HostLayout
	UID    uint64
	ID     uint32
	Event  uint32
	Status uint32
	Param  ConnParam
	Pad    [32]byte
	Pad2   uint32
	ECE    [2]uint32
}

// AH is struct ib_uverbs_ah_attr.
type AH struct {
	_            structs.HostLayout
	DGID         [16]byte
	FlowLabel    uint32
	SGIDIndex    uint8
	HopLimit     uint8
	TrafficClass uint8
	Pad          uint8
	DLID         uint16
	SL           uint8
	SrcBits      uint8
	Rate         uint8
	IsGlobal     uint8
	Port         uint8
	Pad2         uint8
}

// QPAttr is struct ib_uverbs_qp_attr: what the kernel says a queue pair needs.
type QPAttr struct {
	_               structs.HostLayout
	Mask            uint32
	State           uint32
	CurState        uint32
	PathMTU         uint32
	MigState        uint32
	QKey            uint32
	RQPSN           uint32
	SQPSN           uint32
	DestQPN         uint32
	Access          uint32
	AH              AH
	AltAH           AH
	Cap             [5]uint32
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
	Pad             [5]byte
}
