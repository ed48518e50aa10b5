// Package perftest is what the programs of perftest (ib_write_bw and others) send each
// other over TCP, port 18515. The client sends each item first, and the server answers
// with its own:
//
//	version             16 bytes of text
//	cycle, cache line   4 bytes each: memory is used in steps of the larger cycle
//	MTU                 1 digit and a NUL
//	queue pair          an [Endpoint]
//	queue pair          twice more, as barriers before the test, and once after it
//	result              a [Report]
//	queue pair          once more; then both send [Done] and close
//
// The order is that of release 4.5 with bandwidth tests in one direction. Tests of messages
// and latencies have a third barrier before the test, when the server has posted receives, and
// neither the barrier after it nor a result. An Endpoint has
// fields in hexadecimal between colons, with a terminating NUL.
package perftest

import (
	"fmt"
	"strconv"
	"strings"
)

// Port is the default port.
const Port = 18515

// Sizes of a description in bytes, with the NUL: without a GID, which InfiniBand
// ports may leave out, and with it.
const (
	Size    = 59
	SizeGID = 108
)

// An Endpoint is one side of a connection.
type Endpoint struct {
	LID      uint16
	OutReads uint16 // READs and atomics in flight
	QPN      uint32 // 24 bits
	PSN      uint32 // 24 bits
	Rkey     uint32
	VAddr    uint64
	SRQN     uint32
	GID      [16]byte // zeros mean none
}

// A field is a number in a description, and its digits.
type field struct {
	name  string
	width int
}

var (
	head = []field{{"lid", 4}, {"out_reads", 4}, {"qpn", 6}, {"psn", 6}, {"rkey", 8}, {"vaddr", 16}}
	gid  = field{"gid", 2}
	tail = field{"srqn", 8}
)

// Append adds the description to b, with the GID or without.
func (e *Endpoint) Append(b []byte, withGID bool) ([]byte, error) {
	if e.QPN >= 1<<24 || e.PSN >= 1<<24 {
		return b, fmt.Errorf("queue pair %#x and PSN %#x must have at most 24 bits", e.QPN, e.PSN)
	}
	b = fmt.Appendf(b, "%04x:%04x:%06x:%06x:%08x:%016x:", e.LID, e.OutReads, e.QPN, e.PSN, e.Rkey, e.VAddr)
	if withGID {
		for _, x := range e.GID {
			b = fmt.Appendf(b, "%02x:", x)
		}
		return fmt.Appendf(b, "%08x:\x00", e.SRQN), nil // only this form ends with a colon
	}
	return fmt.Appendf(b, "%08x\x00", e.SRQN), nil
}

// Parse reads a description of Size or SizeGID bytes.
func Parse(b []byte) (Endpoint, error) {
	var e Endpoint
	if len(b) != Size && len(b) != SizeGID {
		return e, fmt.Errorf("description has %d bytes, must have %d, or %d with a GID", len(b), Size, SizeGID)
	}
	text, ok := strings.CutSuffix(string(b), "\x00")
	if !ok {
		return e, fmt.Errorf("description %q must end with a NUL", b)
	}
	r := reader{rest: text}
	var n [6]uint64
	for i, f := range head {
		n[i] = r.take(f, ":")
	}
	if len(b) == SizeGID {
		for i := range e.GID {
			e.GID[i] = byte(r.take(gid, ":"))
		}
		e.SRQN = uint32(r.take(tail, ":"))
	} else {
		e.SRQN = uint32(r.take(tail, ""))
	}
	if r.err != nil {
		return Endpoint{}, fmt.Errorf("description %q: %w", text, r.err)
	}
	e.LID, e.OutReads, e.QPN, e.PSN = uint16(n[0]), uint16(n[1]), uint32(n[2]), uint32(n[3])
	e.Rkey, e.VAddr = uint32(n[4]), n[5]
	return e, nil
}

// A reader takes fields off a text until the first error.
type reader struct {
	rest string
	err  error
}

// take reads a field, and what must follow it.
func (r *reader) take(f field, after string) uint64 {
	if r.err != nil {
		return 0
	}
	if len(r.rest) < f.width {
		r.err = fmt.Errorf("%s is cut off", f.name)
		return 0
	}
	text := r.rest[:f.width]
	v, err := strconv.ParseUint(text, 16, 64)
	if err != nil || text != fmt.Sprintf("%0*x", f.width, v) {
		r.err = fmt.Errorf("%s %q must have %d hexadecimal digits", f.name, text, f.width)
		return 0
	}
	var ok bool
	if r.rest, ok = strings.CutPrefix(r.rest[f.width:], after); !ok {
		r.err = fmt.Errorf("%s %q must be followed by %q", f.name, text, after)
	}
	return v
}
