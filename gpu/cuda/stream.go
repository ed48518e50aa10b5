package cuda

import (
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dl"
)

// A Stream is a CUstream that does not synchronise with the default stream.
// Besides [gpu.Stream] it has CopyWrite.
type Stream struct{ object }

var _ gpu.Stream = (*Stream)(nil)

// NewStream creates a stream.
func (d *Device) NewStream() (gpu.Stream, error) {
	h := new(uintptr)
	s := &d.symbols.cuStreamCreate
	if err := d.check(s, d.call(s, ref(h), streamNonBlocking)); err != nil {
		return nil, err
	}
	t := new(Stream)
	d.adopt(&t.object, *h, &d.symbols.cuStreamDestroy)
	return t, nil
}

// Copy enqueues a copy.
func (t *Stream) Copy(dst, src gpu.Addr, n uint64) error {
	s := &t.d.symbols.cuMemcpyAsync
	if c := t.call(s, uintptr(dst), uintptr(src), uintptr(n), t.handle); c != gpu.Success {
		return t.d.fail(s, c, "", dst, src, n)
	}
	return nil
}

// CopyWrite enqueues a copy and, after it, a store of a 4-byte value, in one
// transition to C.
func (t *Stream) CopyWrite(dst, src gpu.Addr, n uint64, at gpu.Addr, value uint32) error {
	s, w := &t.d.symbols.cuMemcpyAsync, &t.d.symbols.cuStreamWriteValue32
	if t.closed.Load() || t.d.closed.Load() {
		return t.d.fail(s, t.d.unusable(), "", dst, src, n)
	}
	if w.fn == 0 {
		return t.d.fail(w, gpu.ErrNotSupported, "", at, value)
	}
	c, step := dl.Chain(t.d.current(),
		dl.Step{Fn: s.fn, Args: [maxStepArgs]uintptr{uintptr(dst), uintptr(src), uintptr(n), t.handle}},
		dl.Step{Fn: w.fn, Args: [maxStepArgs]uintptr{t.handle, uintptr(at), uintptr(value), 0}})
	switch {
	case c == 0:
		return nil
	case step == 2:
		return t.d.fail(w, gpu.Code(c), "", at, value)
	}
	return t.d.fail(s, gpu.Code(c), "", dst, src, n)
}

// Fill enqueues a fill.
func (t *Stream) Fill(dst gpu.Addr, value uint32, width int, n uint64) error {
	sym := t.d.symbols
	s, invalid := memset(width, n, &sym.cuMemsetD8Async, &sym.cuMemsetD16Async, &sym.cuMemsetD32Async)
	if invalid != "" {
		return t.d.fail(s, gpu.ErrInvalidValue, invalid, dst, value, n)
	}
	if c := t.call(s, uintptr(dst), uintptr(value), uintptr(n), t.handle); c != gpu.Success {
		return t.d.fail(s, c, "", dst, value, n)
	}
	return nil
}

// Do enqueues a function on the host. It runs on a thread of the driver, and
// never runs if the context fails before its turn.
func (t *Stream) Do(f func()) error {
	s := &t.d.symbols.cuLaunchHostFunc
	if f == nil {
		return t.d.fail(s, gpu.ErrInvalidValue, "no function")
	}
	id := lastHostFunc.Add(1)
	hostFuncs.Store(id, f)
	c := t.call(s, t.handle, uintptr(hostCallback()), id)
	if c != gpu.Success {
		hostFuncs.Delete(id)
	}
	return t.d.check(s, c)
}

// Write enqueues a store.
func (t *Stream) Write(a gpu.Addr, value uint64, width int) error {
	s, ok := wide(width, &t.d.symbols.cuStreamWriteValue32, &t.d.symbols.cuStreamWriteValue64)
	if !ok {
		return t.d.fail(s, gpu.ErrInvalidValue, "value width must be 4 or 8 bytes", a, value)
	}
	if c := t.call(s, t.handle, uintptr(a), uintptr(value), 0); c != gpu.Success {
		return t.d.fail(s, c, "", a, value)
	}
	return nil
}

// Wait makes later work of the stream wait for a value.
func (t *Stream) Wait(a gpu.Addr, value uint64, width int, cond gpu.Cond) error {
	s, ok := wide(width, &t.d.symbols.cuStreamWaitValue32, &t.d.symbols.cuStreamWaitValue64)
	if !ok {
		return t.d.fail(s, gpu.ErrInvalidValue, "value width must be 4 or 8 bytes", a, value)
	}
	return t.d.check(s, t.call(s, t.handle, uintptr(a), uintptr(value), uintptr(cond)), a, value, cond)
}

func wide(width int, w32, w64 *symbol) (s *symbol, ok bool) {
	if width == 8 {
		return w64, true
	}
	return w32, width == 4
}

// Done reports whether all work has finished.
func (t *Stream) Done() (bool, error) { return t.done(&t.d.symbols.cuStreamQuery) }

// Synchronize waits for all work.
func (t *Stream) Synchronize() error { return t.synchronize(&t.d.symbols.cuStreamSynchronize) }
