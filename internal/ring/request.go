package ring

import (
	"errors"
	"fmt"
	"math"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
)

// A Req is one transfer: Len bytes between a file at Off and GPU memory at Addr.
type Request struct {
	Write    bool // GPU to file; else file to GPU
	Buffered int  // descriptor without O_DIRECT
	Direct   int  // descriptor of the same file with O_DIRECT; -1 for none
	Align    int  // what O_DIRECT asks of offset, length and memory; 0 is 4096
	Off      int64
	// Addr is memory of the ring's GPU in the ring's context, or any memory that
	// the GPU's driver can copy.
	Addr gpu.Addr
	Len  int64
	Sync bool // Write: fdatasync the file before Run returns
	Sum  bool // take the CRC-32C of the bytes
}

// A Res is the outcome of a Req.
type Result struct {
	// N is how many bytes from the start are in place. After an error bytes
	// behind them may have been moved, too. A read is short without an error
	// at the end of the file.
	N           int64
	Err         error
	HostBytes   int64  // moved through host memory
	DirectBytes int64  // of these, read or written by O_DIRECT
	Retries     int    // interrupted and short calls, and O_DIRECT refusals
	Sum         uint32 // CRC-32C of the N bytes, when asked for and Err is nil
}

// An Error says which part of a request failed.
type Error struct {
	Op   string // "read", "write", "sync", "reserve", or "copy" for the GPU's part
	Off  int64  // in the file
	Len  int64  // of the part that failed
	Addr gpu.Addr
	Err  error
}

func (e *Error) Error() string {
	if e.Op == "copy" {
		return fmt.Sprintf("ring: copy %d bytes at GPU address %v (file offset %d): %v", e.Len, e.Addr, e.Off, e.Err)
	}
	return fmt.Sprintf("ring: %s %d bytes at file offset %d: %v", e.Op, e.Len, e.Off, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// ErrClosed is the answer of a ring that was closed.
var ErrClosed = errors.New("ring: closed")

func (q *Request) check() error {
	switch {
	case q.Buffered < 0:
		return fmt.Errorf("ring: descriptor %d: %w", q.Buffered, unix.EBADF)
	case q.Len < 0 || q.Off < 0 || q.Off > math.MaxInt64-q.Len:
		return fmt.Errorf("ring: %d bytes at file offset %d: %w", q.Len, q.Off, unix.EINVAL)
	case uint64(q.Addr)+uint64(q.Len) < uint64(q.Addr):
		return fmt.Errorf("ring: %d bytes at GPU address %v: %w", q.Len, q.Addr, unix.EINVAL)
	case q.Align < 0 || q.Align&(q.Align-1) != 0:
		return fmt.Errorf("ring: alignment %d is not a power of two: %w", q.Align, unix.EINVAL)
	case q.Align > maxAlign:
		return fmt.Errorf("ring: alignment %d is more than the %d that slots allow: %w", q.Align, maxAlign, unix.EINVAL)
	}
	return nil
}

const (
	page     = 4096
	maxAlign = minSlot / 2
)

func (q *Request) verb() string {
	if q.Write {
		return "write"
	}
	return "read"
}

// border is the alignment of the places where a request may be cut. It is at
// least a page, so that no page is written in part through the page cache and
// in part by O_DIRECT.
func (q *Request) boundary() int64 { return int64(max(q.Align, page)) }

// align is what O_DIRECT asks for.
func (q *Request) align() int64 {
	if q.Align == 0 {
		return page
	}
	return int64(q.Align)
}

func down(n, align int64) int64 { return n &^ (align - 1) }
func up(n, align int64) int64   { return (n + align - 1) &^ (align - 1) }
