package fabrics

import (
	"fmt"
	"io"
	"net"

	abi "github.com/culvert-io/culvert/internal/abi/nvmf"
)

// Answers to a connection request, before their private data.
const (
	cmAccept = 'A'
	cmReject = 'R'
)

// A RejectedError is a queue that the target did not accept.
type RejectedError struct{ Reason string }

func (e *RejectedError) Error() string { return "the target rejects the queue: " + e.Reason }

// request asks for a queue and returns the receive queue size of the target.
func request(conn net.Conn, req abi.RDMARequest) (int, error) {
	if _, err := conn.Write(abi.Encode(&req)); err != nil {
		return 0, err
	}
	var kind [1]byte
	if _, err := io.ReadFull(conn, kind[:]); err != nil {
		return 0, err
	}
	switch kind[0] {
	case cmAccept:
		a, err := receive[abi.RDMAAccept](conn, abi.RDMAAcceptSize)
		return int(a.CRQSize), err
	case cmReject:
		r, err := receive[abi.RDMAReject](conn, abi.RDMARejectSize)
		if err != nil {
			return 0, err
		}
		return 0, &RejectedError{r.Status.String()}
	}
	return 0, fmt.Errorf("the peer answers %q: it is no NVMe target", kind[0])
}

func receive[S abi.Struct](conn net.Conn, n int) (S, error) {
	b := make([]byte, n)
	if _, err := io.ReadFull(conn, b); err != nil {
		var zero S
		return zero, err
	}
	return abi.Decode[S](b)
}

func accept(conn net.Conn, crq int) error {
	_, err := conn.Write(append([]byte{cmAccept}, abi.Encode(&abi.RDMAAccept{CRQSize: uint16(crq)})...))
	return err
}

// reject tells the host why there is no queue.
func reject(conn net.Conn, status abi.RDMAStatus) error {
	_, err := conn.Write(append([]byte{cmReject}, abi.Encode(&abi.RDMAReject{Status: status})...))
	if err != nil {
		return err
	}
	return fmt.Errorf("rejected: %v", status)
}
