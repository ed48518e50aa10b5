package remote

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/culvert-io/culvert/internal/enum"
)

// An op is what a request asks for.
type op uint8

const (
	opOpen   op = 1 + iota // Name; the answer has handle, size, tag and chunk
	opCreate               // Name, Len: an upload
	opResume               // Handle: the upload of a lost connection
	opRead                 // write file data from Off into the client's memory
	opWrite                // read the client's memory into the file at Off
	opSum                  // CRC-32C of the whole file
	opCommit               // publish an upload
	opClose                // the answer has the tag, which tells whether the file changed
)

var opNames = [...]string{"operation 0", opOpen: "open", opCreate: "create", opResume: "resume", opRead: "read", opWrite: "write", opSum: "sum", opCommit: "commit", opClose: "close"}

func (o op) String() string { return enum.Name(opNames[:], o, "operation %d") }

// A request is a message of the client.
type request struct {
	Op     op
	ID     uint64
	Handle uint64
	Off    uint64
	Len    uint64
	Addr   uint64
	RKey   uint32
	Name   string
}

// A reply is the answer to a request.
type reply struct {
	ID     uint64
	Status Status
	Handle uint64
	Len    uint64
	Tag    uint64
	CRC    uint32
	Chunk  uint32 // bytes that a task may have
	Reason string
}

const (
	requestHead = 1 + 5*8 + 4 + 2
	replyHead   = 4*8 + 2 + 4 + 4 + 2
	maxName     = 4096
	maxFrame    = max(requestHead, replyHead) + maxName
)

// appendRequest and appendReply append a message with its length before it. All numbers
// are big endian.
func appendRequest(b []byte, r *request) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(requestHead+len(r.Name)))
	b = append(b, byte(r.Op))
	for _, v := range [...]uint64{r.ID, r.Handle, r.Off, r.Len, r.Addr} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	b = binary.BigEndian.AppendUint32(b, r.RKey)
	return appendText(b, r.Name)
}

func appendReply(b []byte, r *reply) []byte {
	if len(r.Reason) > maxName {
		r.Reason = r.Reason[:maxName]
	}
	b = binary.BigEndian.AppendUint32(b, uint32(replyHead+len(r.Reason)))
	for _, v := range [...]uint64{r.ID, r.Handle, r.Len, r.Tag} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	b = binary.BigEndian.AppendUint16(b, uint16(r.Status))
	b = binary.BigEndian.AppendUint32(b, r.CRC)
	b = binary.BigEndian.AppendUint32(b, r.Chunk)
	return appendText(b, r.Reason)
}

func appendText(b []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(len(s))), s...)
}

var errMessage = errors.New("malformed message")

// readFrame reads a message without its length.
func readFrame(r io.Reader) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxFrame {
		return nil, fmt.Errorf("%w: %d bytes, more than %d", errMessage, n, maxFrame)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, err
	}
	return b, nil
}

func parseRequest(b []byte) (r request, err error) {
	if len(b) < requestHead {
		return r, fmt.Errorf("%w: request of %d bytes, at least %d", errMessage, len(b), requestHead)
	}
	r.Op = op(b[0])
	for i, v := range [...]*uint64{&r.ID, &r.Handle, &r.Off, &r.Len, &r.Addr} {
		*v = binary.BigEndian.Uint64(b[1+8*i:])
	}
	r.RKey = binary.BigEndian.Uint32(b[41:])
	r.Name, err = text(b[45:])
	return r, err
}

func parseReply(b []byte) (r reply, err error) {
	if len(b) < replyHead {
		return r, fmt.Errorf("%w: reply of %d bytes, at least %d", errMessage, len(b), replyHead)
	}
	for i, v := range [...]*uint64{&r.ID, &r.Handle, &r.Len, &r.Tag} {
		*v = binary.BigEndian.Uint64(b[8*i:])
	}
	r.Status = Status(binary.BigEndian.Uint16(b[32:]))
	r.CRC = binary.BigEndian.Uint32(b[34:])
	r.Chunk = binary.BigEndian.Uint32(b[38:])
	r.Reason, err = text(b[42:])
	return r, err
}

// text reads the text at the end of a message.
func text(b []byte) (string, error) {
	n := int(binary.BigEndian.Uint16(b))
	if n != len(b)-2 || n > maxName {
		return "", fmt.Errorf("%w: text of %d bytes in %d", errMessage, n, len(b)-2)
	}
	return string(b[2:]), nil
}
