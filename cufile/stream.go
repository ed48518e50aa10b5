package cufile

import (
	"context"
	"errors"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/ladder"
	"github.com/culvert-io/culvert/route"
)

// A Stream is the part of a gpu.Stream that stream I/O uses. Two values that are equal
// are the same stream. With WaitIfIdle of gpu.BorrowedStream, transfers in idle streams
// begin sooner, and with its Capturing, those that record graphs are refused.
type Stream interface {
	// Do enqueues a function on the host, which returns at once and calls no driver.
	Do(func()) error
	// Wait blocks the stream until the word at a meets cond.
	Wait(a gpu.Addr, value uint64, width int, cond gpu.Cond) error
}

// A StreamOp is a transfer on a stream.
type StreamOp struct {
	Mem gpu.Span // the memory
	Off int64    // the offset in the file
	// Args, if set, is called when the stream reaches the transfer, for the memory and
	// the offset to use. Its error is that of the transfer. The memory must be on the
	// GPU of Mem.
	Args func() (mem gpu.Span, off int64, err error)
	// Done, if set, gets the result. The stream continues when it returns, so it must
	// not wait for the stream.
	Done func(route.Receipt, error)
}

// ReadAsync enqueues a read on a stream and returns. The read starts when all earlier
// work of the stream has finished, and later work waits for it. Other streams, and
// other reads, go on whether it succeeds or fails.
//
// A read whose file is closed before its turn fails with HandleNotRegistered. Closing
// a file or a buffer waits only for transfers that have started: what the stream waits
// for may come after the call. A stream that records a graph is refused with
// CUDADriverError and gpu.ErrStreamCaptureUnsupported.
func (f *File) ReadAsync(s Stream, op StreamOp) error { return f.enqueue(s, route.Read, op) }

// WriteAsync is the mirror of ReadAsync.
func (f *File) WriteAsync(s Stream, op StreamOp) error { return f.enqueue(s, route.Write, op) }

// asyncOps name the operations in errors.
var asyncOps = [...]string{route.Read: "read in stream", route.Write: "write in stream"}

func (f *File) enqueue(s Stream, dir route.Dir, op StreamOp) error {
	if err := f.checkAsync(s, dir, op.Mem); err != nil {
		return err
	}
	if err := f.drv.inOrder(s, f, dir, &op); err != nil {
		return &Error{asyncOps[dir], f.Name(), codeFor(err), err, ""}
	}
	return nil
}

// checkAsync finds what would fail for sure, and makes what the transfer must not make
// itself while the stream waits.
func (f *File) checkAsync(s Stream, dir route.Dir, mem gpu.Span) error {
	op := asyncOps[dir]
	if err := f.enter(op); err != nil {
		return err
	}
	defer f.leave()
	if s == nil {
		return &Error{op, f.Name(), InvalidValue, errors.New("stream is nil"), ""}
	}
	if c, ok := s.(interface{ Capturing() (bool, error) }); ok {
		capturing, err := c.Capturing()
		if err == nil && capturing {
			err = gpu.Fail("cuStreamIsCapturing", gpu.ErrStreamCaptureUnsupported, "file I/O cannot be part of a graph")
		}
		if err != nil {
			return &Error{op, f.Name(), CUDADriverError, err, "end the capture first"}
		}
	}
	if l := f.drv.ladderAt(mem.Base); l != nil {
		l.Prepare()
	}
	return nil
}

// ladderAt is the ladder of the memory at an address, nil if it is none: the transfer
// reports that. For a registered buffer the GPU driver is not asked, which would take a
// tenth of the call.
func (d *Driver) ladderAt(a gpu.Addr) *ladder.Ladder {
	if b := d.buffers.find(a); b != nil && b.ladder != nil {
		return b.ladder
	}
	p, err := d.pointer(a)
	if err != nil {
		return nil
	}
	l, err := d.ladderOf(p.Device, p.Kind)
	if err != nil {
		return nil
	}
	return l
}

// executeAsync runs a transfer whose turn has come.
func (f *File) executeAsync(dir route.Dir, op *StreamOp) (route.Receipt, error) {
	mem, off := op.Mem, op.Off
	if op.Args != nil {
		var err error
		if mem, off, err = op.Args(); err != nil {
			return route.Receipt{Dir: dir, Machine: f.drv.kind}, err
		}
	}
	b := batches.Get().(*batch)
	defer b.release()
	if err := b.add(context.Background(), f, dir, mem, off, false); err != nil {
		return route.Receipt{Dir: dir, Machine: f.drv.kind}, err
	}
	b.ops[0].InStream = true
	b.receipt[0] = route.Receipt{}
	err := b.run(context.Background(), b.receipt[:])
	return b.receipt[0], err
}
