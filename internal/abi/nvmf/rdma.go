package nvmf

import (
	"fmt"
	"structs"
)

// RDMAPort is the IP port of NVMe over RDMA.
const RDMAPort = 4420

// RDMA_CM_FMT_1_0 is the only format of the private data.
const RDMA_CM_FMT_1_0 = 0

// RDMARequest is the private data of a connection request.
type RDMARequest struct {
	_       structs.HostLayout
	RecFmt  uint16
	QID     uint16
	HRQSize uint16 // receive queue of the host, in entries
	HSQSize uint16 // send queue of the host, less one
	CNTLID  uint16 // controller of an I/O queue
	Pad     [22]byte
}

// RDMAAccept is the private data of an accepted connection.
type RDMAAccept struct {
	_       structs.HostLayout
	RecFmt  uint16
	CRQSize uint16 // receive queue of the controller, in entries
	Pad     [28]byte
}

// RDMAReject is the private data of a rejected connection.
type RDMAReject struct {
	_      structs.HostLayout
	RecFmt uint16
	Status RDMAStatus
}

// Sizes of the private data in bytes.
const (
	RDMARequestSize = 32
	RDMAAcceptSize  = 32
	RDMARejectSize  = 4
)

// An RDMAStatus says why a connection is rejected.
type RDMAStatus uint16

// The reasons.
const (
	RDMA_CM_INVALID_LEN     RDMAStatus = 1
	RDMA_CM_INVALID_RECFMT  RDMAStatus = 2
	RDMA_CM_INVALID_QID     RDMAStatus = 3
	RDMA_CM_INVALID_HSQSIZE RDMAStatus = 4
	RDMA_CM_INVALID_HRQSIZE RDMAStatus = 5
	RDMA_CM_NO_RSC          RDMAStatus = 6
	RDMA_CM_INVALID_IRD     RDMAStatus = 7
	RDMA_CM_INVALID_ORD     RDMAStatus = 8
	RDMA_CM_INVALID_CNTLID  RDMAStatus = 9
)

var rdmaStatusNames = [...]string{
	RDMA_CM_INVALID_LEN:     "invalid length of the private data",
	RDMA_CM_INVALID_RECFMT:  "invalid record format",
	RDMA_CM_INVALID_QID:     "invalid queue identifier",
	RDMA_CM_INVALID_HSQSIZE: "invalid host send queue size",
	RDMA_CM_INVALID_HRQSIZE: "invalid host receive queue size",
	RDMA_CM_NO_RSC:          "no resources",
	RDMA_CM_INVALID_IRD:     "invalid inbound read depth",
	RDMA_CM_INVALID_ORD:     "invalid outbound read depth",
	RDMA_CM_INVALID_CNTLID:  "invalid controller identifier",
}

func (s RDMAStatus) String() string {
	if int(s) < len(rdmaStatusNames) && rdmaStatusNames[s] != "" {
		return rdmaStatusNames[s]
	}
	return fmt.Sprintf("unknown reason %d", uint16(s))
}
