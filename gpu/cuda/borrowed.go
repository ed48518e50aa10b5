package cuda

import (
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dl"
)

// A borrowedStream is a gpu.BorrowedStream.
type borrowedStream struct {
	drv    *Driver
	ctx    uintptr
	handle uintptr
	// independent: the work of the stream waits for no other stream's. A default stream
	// and blocking ones wait for each other, of which cuStreamQuery says nothing.
	independent bool
}

var _ gpu.Borrower = (*Driver)(nil)

// lastDefault is the last of the numbers of default streams.
const lastDefault = 2

// Borrow returns the stream of a handle. Its flags never change, so they are asked for
// here, in the same transition to C as the context. A handle that is no stream fails when
// the stream is used.
func (d *Driver) Borrow(handle uintptr) (gpu.BorrowedStream, error) {
	current, flags := &d.symbols.cuCtxGetCurrent, &d.symbols.cuStreamGetFlags
	if handle <= lastDefault || current.fn == 0 || flags.fn == 0 {
		ctx, err := get[uintptr](d, current)
		return borrowedStream{drv: d, ctx: ctx, handle: handle}, err
	}
	v := new(struct {
		ctx   uintptr
		flags uint32
	})
	c, at := dl.Chain(
		dl.Step{Fn: current.fn, Args: [maxStepArgs]uintptr{ref(&v.ctx)}},
		dl.Step{Fn: flags.fn, Args: [maxStepArgs]uintptr{handle, ref(&v.flags)}})
	if at == 0 {
		return nil, d.check(current, gpu.Code(c))
	}
	return borrowedStream{d, v.ctx, handle, c == 0 && v.flags&streamNonBlocking != 0}, nil
}

// call calls s in the context of the borrower, which other calls of this package have
// replaced.
func (b borrowedStream) call(s *symbol, args ...uintptr) gpu.Code {
	if s.fn == 0 {
		return gpu.ErrNotSupported
	}
	if b.ctx == 0 {
		return s.call(args...)
	}
	c, _ := dl.Chain(dl.Step{Fn: b.drv.symbols.cuCtxSetCurrent.fn, Args: [maxStepArgs]uintptr{b.ctx}}, step(s, args))
	return gpu.Code(c)
}

// Do enqueues a function on the host.
func (b borrowedStream) Do(f func()) error {
	s := &b.drv.symbols.cuLaunchHostFunc
	id := lastHostFunc.Add(1)
	hostFuncs.Store(id, f)
	c := b.call(s, b.handle, uintptr(hostCallback()), id)
	if c != gpu.Success {
		hostFuncs.Delete(id)
	}
	return b.drv.check(s, c)
}

// Wait makes later work of the stream wait for a value.
func (b borrowedStream) Wait(a gpu.Addr, value uint64, width int, cond gpu.Cond) error {
	s, ok := wide(width, &b.drv.symbols.cuStreamWaitValue32, &b.drv.symbols.cuStreamWaitValue64)
	if !ok {
		return b.drv.fail(s, gpu.ErrInvalidValue, "value width must be 4 or 8 bytes", a, value)
	}
	return b.drv.check(s, b.call(s, b.handle, uintptr(a), uintptr(value), uintptr(cond)), a, value, cond)
}

// WaitIfIdle is Wait if the stream has nothing to do and new work would begin at once.
func (b borrowedStream) WaitIfIdle(a gpu.Addr, value uint64, width int, cond gpu.Cond) (bool, error) {
	if b.ctx == 0 || !b.independent {
		return false, nil
	}
	return b.drv.waitIfIdle(b.ctx, b.handle, a, value, width, cond)
}

// waitIfIdle is WaitIfIdle for an independent stream, in one transition to C.
func (d *Driver) waitIfIdle(ctx, stream uintptr, a gpu.Addr, value uint64, width int, cond gpu.Cond) (bool, error) {
	query := &d.symbols.cuStreamQuery
	wait, ok := wide(width, &d.symbols.cuStreamWaitValue32, &d.symbols.cuStreamWaitValue64)
	if !ok {
		return false, d.fail(wait, gpu.ErrInvalidValue, "value width must be 4 or 8 bytes", a, value)
	}
	if wait.fn == 0 {
		return false, d.fail(wait, gpu.ErrNotSupported, "", a, value, cond)
	}
	c, at := dl.Chain(
		dl.Step{Fn: d.symbols.cuCtxSetCurrent.fn, Args: [maxStepArgs]uintptr{ctx}},
		dl.Step{Fn: query.fn, Args: [maxStepArgs]uintptr{stream}},
		dl.Step{Fn: wait.fn, Args: [maxStepArgs]uintptr{stream, uintptr(a), uintptr(value), uintptr(cond)}})
	switch {
	case c == 0:
		return true, nil
	case at == 2:
		return false, d.fail(wait, gpu.Code(c), "", a, value, cond)
	case gpu.Code(c) == gpu.ErrNotReady:
		return false, nil
	}
	return false, d.fail(query, gpu.Code(c), "")
}

// WaitIfIdle is Wait if the stream has nothing to do; it depends on no other.
func (t *Stream) WaitIfIdle(a gpu.Addr, value uint64, width int, cond gpu.Cond) (bool, error) {
	if t.closed.Load() || t.d.closed.Load() {
		return false, t.d.fail(&t.d.symbols.cuStreamQuery, t.d.unusable(), "")
	}
	return t.d.drv.waitIfIdle(t.d.ctx, t.handle, a, value, width, cond)
}

// Capturing reports whether the stream's work is recorded into a graph.
func (b borrowedStream) Capturing() (bool, error) {
	s, v := &b.drv.symbols.cuStreamIsCapturing, new(int32)
	c := b.call(s, b.handle, ref(v))
	return *v != 0, b.drv.check(s, c)
}

// Capturing reports whether the stream's work is recorded into a graph.
func (t *Stream) Capturing() (bool, error) {
	s, v := &t.d.symbols.cuStreamIsCapturing, new(int32)
	c := t.call(s, t.handle, ref(v))
	return *v != 0, t.d.check(s, c)
}
