// Package gdra is the wire of gpu_direct_rdma_access, Mellanox's sample: over TCP a
// client describes a registered buffer, the server moves data into or out of it by
// RDMA and acknowledges.
//
// A request is two records in one write, 97 bytes: type (1 byte), length (2 bytes,
// little endian on the machines that it ran on), and text in hexadecimal with a
// terminating NUL, which the length counts. The acknowledgement is a text of 20 bytes
// with its NUL. There is no negative answer: on failure the server closes the
// connection.
package gdra

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Port is the default port.
const Port = 18515

// Sizes in bytes.
const (
	RequestSize = recordHeader + bufferSize + recordHeader + taskSize
	AckSize     = len(Ack)

	recordHeader = 3
	bufferSize   = 82
	taskSize     = 9
)

// Ack is the acknowledgement of a completed task.
const Ack = "rdma_task completed\x00"

// Types of records.
const (
	recordBuffer = 0
	recordTask   = 1
)

// TaskRead in the flags of a task: the server reads the buffer. Otherwise it writes
// into it.
const TaskRead = 1 << 0

// A Buffer is the client's registered memory and its queue pair.
type Buffer struct {
	Addr   uint64
	Size   uint32
	Rkey   uint32
	LID    uint16
	DCTN   uint32 // 24 bits
	Global bool   // GID counts
	GID    [16]byte
}

// A Request asks the server to fill or to read a buffer.
type Request struct {
	Buffer Buffer
	Flags  uint32
}

// Append adds the 97 bytes of the request to b.
func (r *Request) Append(b []byte) ([]byte, error) {
	if r.Buffer.DCTN >= 1<<24 {
		return b, fmt.Errorf("DCT number %#x must have at most 24 bits", r.Buffer.DCTN)
	}
	global := 0
	if r.Buffer.Global {
		global = 1
	}
	b = appendRecord(b, recordBuffer, fmt.Sprintf("%016x:%08x:%08x:%04x:%06x:%d:%x",
		r.Buffer.Addr, r.Buffer.Size, r.Buffer.Rkey, r.Buffer.LID, r.Buffer.DCTN, global, r.Buffer.GID))
	return appendRecord(b, recordTask, fmt.Sprintf("%08x", r.Flags)), nil
}

func appendRecord(b []byte, kind byte, text string) []byte {
	b = append(b, kind)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(text)+1))
	return append(append(b, text...), 0)
}

// ParseRequest reads a request of exactly RequestSize bytes.
func ParseRequest(b []byte) (Request, error) {
	var r Request
	if len(b) != RequestSize {
		return r, fmt.Errorf("request has %d bytes, must have %d", len(b), RequestSize)
	}
	desc, b, err := cutRecord(b, recordBuffer, bufferSize)
	if err != nil {
		return r, fmt.Errorf("buffer description: %w", err)
	}
	if r.Buffer, err = parseBuffer(desc); err != nil {
		return r, fmt.Errorf("buffer description %q: %w", desc, err)
	}
	task, _, err := cutRecord(b, recordTask, taskSize)
	if err != nil {
		return r, fmt.Errorf("task: %w", err)
	}
	flags, err := number(task, 8)
	if err != nil {
		return r, fmt.Errorf("task %q: %w", task, err)
	}
	r.Flags = uint32(flags)
	return r, nil
}

// cutRecord takes a record of a kind, with n bytes of text and NUL, off b.
func cutRecord(b []byte, kind byte, n int) (text string, rest []byte, err error) {
	if b[0] != kind {
		return "", nil, fmt.Errorf("record type is %d, must be %d", b[0], kind)
	}
	if got := binary.LittleEndian.Uint16(b[1:]); int(got) != n {
		return "", nil, fmt.Errorf("record length is %d, must be %d", got, n)
	}
	b = b[recordHeader:]
	if b[n-1] != 0 {
		return "", nil, errors.New("the text has no terminating NUL")
	}
	return string(b[:n-1]), b[n:], nil
}

func parseBuffer(text string) (Buffer, error) {
	var buf Buffer
	fields := strings.Split(text, ":")
	widths := []int{16, 8, 8, 4, 6, 1}
	if len(fields) != len(widths)+1 {
		return buf, fmt.Errorf("%d fields, must be %d", len(fields), len(widths)+1)
	}
	var n [6]uint64
	for i, w := range widths {
		var err error
		if n[i], err = number(fields[i], w); err != nil {
			return buf, err
		}
	}
	if n[5] > 1 {
		return buf, fmt.Errorf("is_global is %d, must be 0 or 1", n[5])
	}
	gid := fields[6]
	if len(gid) != 32 || strings.ToLower(gid) != gid {
		return buf, fmt.Errorf("GID %q must have 32 hexadecimal digits", gid)
	}
	if _, err := hex.Decode(buf.GID[:], []byte(gid)); err != nil {
		return buf, fmt.Errorf("GID %q must have 32 hexadecimal digits", gid)
	}
	buf.Addr, buf.Size, buf.Rkey = n[0], uint32(n[1]), uint32(n[2])
	buf.LID, buf.DCTN, buf.Global = uint16(n[3]), uint32(n[4]), n[5] == 1
	return buf, nil
}

// number parses exactly n lower-case hexadecimal digits.
func number(text string, n int) (uint64, error) {
	v, err := strconv.ParseUint(text, 16, 64)
	if err != nil || len(text) != n || text != fmt.Sprintf("%0*x", n, v) {
		return 0, fmt.Errorf("field %q must have %d hexadecimal digits", text, n)
	}
	return v, nil
}
