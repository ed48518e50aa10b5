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
}

var _ gpu.Borrower = (*Driver)(nil)

// Borrow returns the stream of a handle.
func (d *Driver) Borrow(handle uintptr) (gpu.BorrowedStream, error) {
	ctx, err := get[uintptr](d, &d.symbols.cuCtxGetCurrent)
	return borrowedStream{d, ctx, handle}, err
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
