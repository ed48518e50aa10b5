package ladder

import (
	"fmt"
	"time"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/route"
)

// A Source is the storage side of a transfer: a file, an object, a drive, a file of another
// host.
type Source interface {
	// Name is what messages call it.
	Name() string
	Size() (int64, error)
	// File is the open file; nil for a source that has no descriptor. Routes that
	// need one decline such a source.
	File() *storage.File
	// ReadAt fills p and returns io.EOF where the source ends before that. Like
	// WriteAt it is what routes through host memory use.
	ReadAt(p []byte, off int64) (int, error)
	WriteAt(p []byte, off int64) (int, error)
}

// An annotator is a Source that adds to receipts what only it knows: what its requests
// to a store did since the last call, which provider moved the bytes.
type annotator interface{ Annotate(*route.Receipt) }

// An Op is one request: Mem.Len bytes between the source at Off and memory of the
// given kind. Kinds that are not on a device are host memory to a route.
type Op struct {
	Dir  route.Dir
	Src  Source
	Off  int64
	Mem  gpu.Span
	Kind gpu.Kind
	// Buf is the registered buffer that Mem is part of; it stays registered during
	// the op. Nil for memory that is not registered.
	Buf Registration
	// InStream means that a stream waits for the op. A route must then not call what
	// waits for streams: synchronous copies, freeing or unpinning memory.
	InStream bool
	// Ended is when the op, and those that ran with it, had ended, by Now. Turn is when one
	// that was moved in two steps began the second, if it is traced. Plan.Run sets both.
	Ended, Turn time.Duration
	// size is that of the file, if sized: the prover has just asked for it, and the route
	// need not. Each costs about 1 % of a read of 64 KiB.
	size  int64
	sized bool
	// strict forbids a route to leave parts of the op to another one. Plan.Run sets it.
	strict bool
	// shared says that the route moves the op together with another one. Plan.Run sets it.
	shared bool
	// windows allows the ring to read parts of the op through BAR1. Plan.Run sets it.
	windows bool
	// proving means that the op is part of a proof of writes. A route must not repeat a read that
	// looks wrong, since no other process writes the file, and must not have the bytes of a
	// write in host memory by chance.
	proving bool
	// passed are direct routes that must not take the op again: the file changed while
	// it was read, or a write did not arrive. Plan.Run clears it.
	passed []*route.Decline
	// proof is what the prover knows about the file. Plan.Run clears it.
	proof *provedFile
	// lesson has the read's time recorded, if it is to be. Plan.Run clears it.
	lesson lesson
}

// A Registration is a registered buffer.
type Registration interface {
	// CheckAllocated returns an error that wraps route.ErrFreed if any of the span
	// is no longer the allocation that was registered.
	CheckAllocated(gpu.Span) error
	// CheckAllocatedCached is CheckAllocated, but may use a result up to 1 ms old.
	// now is a time as returned by Now.
	CheckAllocatedCached(s gpu.Span, now time.Duration) error
}

// file is the op's open file, or nil. A file, the usual source, costs no call.
func (op *Op) file() *storage.File {
	if s, ok := op.Src.(fileSource); ok {
		return s.f
	}
	return op.Src.File()
}

// fileSize is the size of the op's file.
func (op *Op) fileSize() (int64, error) {
	if op.sized {
		return op.size, nil
	}
	return op.file().Size()
}

// end is where the op ends in the source.
func (op *Op) end() int64 { return op.Off + int64(op.Mem.Len) }

// An OpError is the error of an op. It keeps the source's name apart, for callers
// that name it themselves.
type OpError struct {
	Dir    route.Dir
	Source string
	Err    error
}

func (e *OpError) Error() string { return fmt.Sprintf("%s %s: %v", e.Dir, e.Source, e.Err) }

// Unwrap returns the cause.
func (e *OpError) Unwrap() error { return e.Err }

// fail wraps the error of an op. A route that had another do the work names the
// source once.
func (op *Op) fail(err error) error {
	if inner, ok := err.(*OpError); ok {
		return inner
	}
	return &OpError{op.Dir, op.Src.Name(), err}
}

// failAt is fail with an offset; by says how the bytes were moved, if the route's
// name does not.
func (op *Op) failAt(off int64, by string, err error) error {
	return op.fail(fmt.Errorf("at offset %d%s: %w", off, by, err))
}
