package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/crc32c"
	"github.com/culvert-io/culvert/route"
)

// streamBuffer is the host memory between a stream and GPU memory: 16 pipes full.
const streamBuffer = 1 << 20

// A stream is what both directions have: data goes through host memory, in order. The
// buffer is not pinned memory, which must be freed at a known time: a system call that
// was left behind may still use it.
type stream struct {
	name    string
	machine route.Machine
	dev     gpu.Device
	buf     []byte
	sum     uint32 // CRC-32C of what was moved
}

func newStream(drv *cufile.Driver, name string) *stream {
	return &stream{name: name, machine: drv.Machine(), buf: make([]byte, streamBuffer)}
}

// add counts bytes that were moved.
func (s *stream) add(p []byte, r *route.Receipt) {
	n := int64(len(p))
	s.sum = crc32c.Join(s.sum, crc32c.Sum(p), n)
	r.Bytes += n
	r.Host.Bytes += n
	r.By[route.Host] += n
	r.Route = route.Host
}

// A streamReader fills GPU memory. It reads less than asked for at the end of the
// stream only.
type streamReader struct {
	*stream
	in io.Reader
}

func (s *streamReader) ReadAt(ctx context.Context, mem gpu.Span, _ int64) (r route.Receipt, err error) {
	r = route.Receipt{Dir: route.Read, Machine: s.machine}
	defer timed(&r)()
	for uint64(r.Bytes) < mem.Len {
		buf := s.buf[:min(streamBuffer, mem.Len-uint64(r.Bytes))]
		n, err := leavable(ctx, func() (int, error) { return io.ReadFull(s.in, buf) })
		ended := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !ended {
			return r, s.failed("read", err)
		}
		if n > 0 {
			if err := s.dev.CopyIn(mem.Addr()+gpu.Addr(r.Bytes), buf[:n]); err != nil {
				return r, err
			}
			s.add(buf[:n], &r)
		}
		if ended {
			break
		}
	}
	return r, nil
}

// A streamWriter stores GPU memory.
type streamWriter struct {
	*stream
	out io.Writer
}

func (s *streamWriter) WriteAt(ctx context.Context, mem gpu.Span, _ int64) (r route.Receipt, err error) {
	r = route.Receipt{Dir: route.Write, Machine: s.machine}
	defer timed(&r)()
	for uint64(r.Bytes) < mem.Len {
		buf := s.buf[:min(streamBuffer, mem.Len-uint64(r.Bytes))]
		if err := s.dev.CopyOut(buf, mem.Addr()+gpu.Addr(r.Bytes)); err != nil {
			return r, err
		}
		n, err := leavable(ctx, func() (int, error) { return s.out.Write(buf) })
		s.add(buf[:n], &r)
		if err != nil {
			return r, s.failed("write", err)
		}
	}
	return r, nil
}

// failed names the stream in an error, once.
func (s *stream) failed(op string, err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		err = pe.Err // without the name /dev/stdin
	}
	return fmt.Errorf("%s %s: %w", op, s.name, err)
}

// timed adds the time until its result is called.
func timed(r *route.Receipt) func() {
	start := time.Now()
	return func() { r.Time += time.Since(start) }
}

// leavable does a call that may block for ever. If the context ends first, it leaves the
// call behind: a read from a pipe cannot be interrupted, and its descriptor, which may be
// another process's too, must not become non-blocking.
func leavable(ctx context.Context, call func() (int, error)) (n int, err error) {
	type result struct {
		n   int
		err error
	}
	done := make(chan result, 1)
	go func() {
		n, err := call()
		done <- result{n, err}
	}()
	select {
	case r := <-done:
		return r.n, r.err
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}
