package verbs

import (
	"encoding/binary"
	"fmt"

	"github.com/culvert-io/culvert/rdma"
)

// A kind is the kind of a frame. Requests have the number of their operation, plus one.
type kind uint8

const (
	kindAck    kind = 0x81 // all requests up to msn were executed
	kindRead   kind = 0x82 // data of a read, from offset addr
	kindAtomic kind = 0x83 // a is the old value
	kindNak    kind = 0x84 // msn failed with a code
	kindRNR    kind = 0x85 // msn found no receive; code is the time to wait
)

func request(op rdma.Opcode) kind { return kind(op) + 1 }

func (k kind) op() (rdma.Opcode, bool) {
	op := rdma.Opcode(k) - 1
	return op, k != 0 && op.Valid()
}

const (
	flagSolicited = 1
	flagLast      = 2 // the last part of the data of a read
)

const (
	headerSize = 48
	maxMessage = 1 << 30 // bytes in one work request
	readPart   = 1 << 20 // bytes in one frame of a read's data
)

// A header begins a frame. size is the number of bytes that follow; for a read request
// it is the number of bytes to read, and nothing follows.
type header struct {
	kind  kind
	flags uint8
	code  uint8
	size  uint32
	msn   uint64 // number of the request
	addr  uint64
	rkey  uint32
	imm   uint32
	a, b  uint64
}

func (h *header) put(b *[headerSize]byte) {
	*b = [headerSize]byte{byte(h.kind), h.flags, h.code}
	e := binary.BigEndian
	e.PutUint32(b[4:], h.size)
	e.PutUint64(b[8:], h.msn)
	e.PutUint64(b[16:], h.addr)
	e.PutUint32(b[24:], h.rkey)
	e.PutUint32(b[28:], h.imm)
	e.PutUint64(b[32:], h.a)
	e.PutUint64(b[40:], h.b)
}

// parse reads an untrusted header.
func parse(b *[headerSize]byte) (h header, err error) {
	e := binary.BigEndian
	h = header{
		kind: kind(b[0]), flags: b[1], code: b[2], size: e.Uint32(b[4:]), msn: e.Uint64(b[8:]),
		addr: e.Uint64(b[16:]), rkey: e.Uint32(b[24:]), imm: e.Uint32(b[28:]), a: e.Uint64(b[32:]), b: e.Uint64(b[40:]),
	}
	op, isRequest := h.kind.op()
	switch {
	case !isRequest && (h.kind < kindAck || h.kind > kindRNR):
		err = fmt.Errorf("unknown frame %#x", byte(h.kind))
	case b[3] != 0 || h.flags&^(flagSolicited|flagLast) != 0:
		err = fmt.Errorf("reserved bits are set")
	case h.size > maxMessage:
		err = fmt.Errorf("size %d exceeds %d", h.size, maxMessage)
	case isRequest && op.Atomic() && h.size != 8, h.kind == kindRead && h.size > readPart:
		err = fmt.Errorf("frame %#x with size %d", byte(h.kind), h.size)
	case !isRequest && h.kind != kindRead && h.size != 0:
		err = fmt.Errorf("answer %#x with %d bytes", byte(h.kind), h.size)
	}
	return h, err
}

// follows is the number of bytes after the header.
func (h *header) follows() int {
	if op, ok := h.kind.op(); ok && op.Responds() {
		return 0
	}
	return int(h.size)
}

// The codes of kindNak.
const (
	nakInvalid uint8 = 1
	nakAccess  uint8 = 2
	nakOp      uint8 = 3
)

func nakStatus(code uint8) rdma.Status {
	switch code {
	case nakInvalid:
		return rdma.RemInvReqErr
	case nakAccess:
		return rdma.RemAccessErr
	case nakOp:
		return rdma.RemOpErr
	}
	return rdma.BadRespErr
}
