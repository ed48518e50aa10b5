package ring

import (
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/route"
)

// A Source is storage without a descriptor: an object, or memory of another machine.
type Source interface {
	io.ReaderAt
	io.WriterAt
}

// A Request is one transfer: Len bytes between a file at Off and GPU memory at Addr.
type Request struct {
	Write    bool   // GPU to file; otherwise file to GPU
	Source   Source // used instead of the descriptors, which are -1 then
	Buffered int    // descriptor without O_DIRECT
	Direct   int    // descriptor of the same file with O_DIRECT; -1 for none
	Align    int    // what O_DIRECT requires of offset, length and memory; 0 is 4096
	// Cache says how reads use the page cache; nil: as a file opened with O_DIRECT.
	Cache *storage.Stream
	Off   int64
	// Addr is memory of the ring's GPU in the ring's context, or any memory that
	// the GPU's driver can copy.
	Addr gpu.Addr
	Len  int64
	// Window is that memory as the CPU sees it, by a BAR1 mapping of Len bytes; nil for none.
	// A read that has one may go through it in part.
	Window []byte
}

// A Result is the outcome of a Request.
type Result struct {
	// N is how many bytes from the start are in place. After an error, bytes after
	// them may have been moved, too. A read is short without an error at the end
	// of the file.
	N           int64
	Err         error
	HostBytes   int64 // moved through host memory
	DirectBytes int64 // of these, read or written with O_DIRECT
	WindowBytes int64 // of a read, stored through Request.Window; not among HostBytes
	// Cache counts the bytes of a read by what they did to the page cache.
	Cache   route.CacheUse
	Retries int // interrupted and short calls, and rejections of O_DIRECT
	// Turn is when a small request began its second step, the copy to the GPU or the
	// write, by trace.Now; 0 unless the process is traced.
	Turn time.Duration
}

// An Error names the range of a request that failed.
type Error struct {
	Op   string // "read", "write", "reserve", or "copy" for the GPU copy
	Off  int64  // in the file
	Len  int64  // of the range that failed
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

// ErrClosed is returned by a ring that was closed.
var ErrClosed = errors.New("ring: closed")

const (
	page     = 4096
	maxAlign = minSlot / 2
)

func (q *Request) check() error {
	switch {
	case q.Buffered < 0 && q.Source == nil:
		return fmt.Errorf("ring: descriptor %d: %w", q.Buffered, unix.EBADF)
	case q.Len < 0 || q.Off < 0 || q.Off > math.MaxInt64-q.Len:
		return fmt.Errorf("ring: %d bytes at file offset %d: %w", q.Len, q.Off, unix.EINVAL)
	case uint64(q.Addr)+uint64(q.Len) < uint64(q.Addr):
		return fmt.Errorf("ring: %d bytes at GPU address %v: %w", q.Len, q.Addr, unix.EINVAL)
	case q.Align < 0 || q.Align&(q.Align-1) != 0 || q.Align > maxAlign:
		return fmt.Errorf("ring: alignment %d must be a power of two, at most %d: %w", q.Align, maxAlign, unix.EINVAL)
	case q.Window != nil && int64(len(q.Window)) != q.Len:
		return fmt.Errorf("ring: window of %d bytes must have the %d of its request: %w", len(q.Window), q.Len, unix.EINVAL)
	}
	return nil
}

func (q *Request) verb() string {
	if q.Write {
		return "write"
	}
	return "read"
}

// stream is how the request uses the page cache.
func (q *Request) stream() *storage.Stream {
	if q.Cache == nil {
		return &openedDirect
	}
	return q.Cache
}

var openedDirect storage.Stream

// asks reports whether a read asks what the page cache has of it. For a small one
// that costs too much, unless it must fill nothing.
func (q *Request) asks() bool {
	return q.Source == nil && (q.Len > smallLen || q.Direct >= 0 && q.stream().FillsNothing())
}

// boundary is the alignment of the offsets where a request may be split: at least a
// page, so that no page is written both through the page cache and with O_DIRECT.
func (q *Request) boundary() int64 { return int64(max(q.Align, page)) }

// align is what O_DIRECT requires.
func (q *Request) align() int64 {
	if q.Align == 0 {
		return page
	}
	return int64(q.Align)
}

func down(n, align int64) int64 { return n &^ (align - 1) }
func up(n, align int64) int64   { return (n + align - 1) &^ (align - 1) }
