package cuda

import (
	"runtime"
	"sync/atomic"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dl"
)

// A Stream is a CUstream that does not synchronise with the default stream.
// Besides [gpu.Stream] it copies in batches, and with a mark behind the copy.
type Stream struct {
	d      *Device
	handle uintptr
	closed atomic.Bool
}

var _ gpu.Stream = (*Stream)(nil)

// NewStream creates a stream.
func (d *Device) NewStream() (gpu.Stream, error) {
	h := new(uintptr)
	s := &d.symbols.cuStreamCreate
	if c := d.call(s, ref(h), streamNonBlocking); c != gpu.Success {
		return nil, d.fail(s, c, "")
	}
	t := &Stream{d: d, handle: *h}
	d.parts.add(t)
	return t, nil
}

// call calls s with the stream's context current. A closed stream's handle
// must not reach the driver, which does not check it.
func (t *Stream) call(s *symbol, args ...uintptr) gpu.Code {
	if t.closed.Load() {
		return t.d.unusable()
	}
	return t.d.call(s, args...)
}

// Copy enqueues a copy.
func (t *Stream) Copy(dst, src gpu.Addr, n uint64) error {
	s := &t.d.symbols.cuMemcpyAsync
	if c := t.call(s, uintptr(dst), uintptr(src), uintptr(n), t.handle); c != gpu.Success {
		return t.d.fail(s, c, "", dst, src, n)
	}
	return nil
}

// CopyWrite enqueues a copy and, behind it, a store of a 4-byte value, in one
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
	s, ok := t.memset(width)
	if why := refusesFill(ok, width, n); why != "" {
		return t.d.fail(s, gpu.ErrInvalidValue, why, dst, value, n)
	}
	if c := t.call(s, uintptr(dst), uintptr(value), uintptr(n), t.handle); c != gpu.Success {
		return t.d.fail(s, c, "", dst, value, n)
	}
	return nil
}

func (t *Stream) memset(width int) (s *symbol, ok bool) {
	switch width {
	case 1:
		return &t.d.symbols.cuMemsetD8Async, true
	case 2:
		return &t.d.symbols.cuMemsetD16Async, true
	case 4:
		return &t.d.symbols.cuMemsetD32Async, true
	}
	return &t.d.symbols.cuMemsetD8Async, false
}

// Do enqueues a function on the host. It runs on a thread of the driver and
// is dropped if the context fails before its turn.
func (t *Stream) Do(f func()) error {
	s := &t.d.symbols.cuLaunchHostFunc
	if f == nil {
		return t.d.fail(s, gpu.ErrInvalidValue, "no function")
	}
	id := hostFuncs.put(f)
	c := t.call(s, t.handle, uintptr(hostCallback()), id)
	if c != gpu.Success {
		hostFuncs.take(id)
		return t.d.fail(s, c, "")
	}
	return nil
}

// Write enqueues a store.
func (t *Stream) Write(a gpu.Addr, value uint64, width int) error {
	s, ok := wide(width, &t.d.symbols.cuStreamWriteValue32, &t.d.symbols.cuStreamWriteValue64)
	if !ok {
		return t.d.fail(s, gpu.ErrInvalidValue, "values have 4 or 8 bytes", a, value)
	}
	if c := t.call(s, t.handle, uintptr(a), uintptr(value), 0); c != gpu.Success {
		return t.d.fail(s, c, "", a, value)
	}
	return nil
}

// Wait enqueues a wait for a value.
func (t *Stream) Wait(a gpu.Addr, value uint64, width int, cond gpu.Cond) error {
	s, ok := wide(width, &t.d.symbols.cuStreamWaitValue32, &t.d.symbols.cuStreamWaitValue64)
	if !ok {
		return t.d.fail(s, gpu.ErrInvalidValue, "values have 4 or 8 bytes", a, value)
	}
	if c := t.call(s, t.handle, uintptr(a), uintptr(value), uintptr(cond)); c != gpu.Success {
		return t.d.fail(s, c, "", a, value, cond)
	}
	return nil
}

func wide(width int, w32, w64 *symbol) (s *symbol, ok bool) {
	if width == 8 {
		return w64, true
	}
	return w32, width == 4
}

// CopyBatch enqueues copies of n[i] bytes from src[i] to dst[i] in one call.
// They run in any order among themselves. Before CUDA 12.8 it is
// ErrNotSupported.
func (t *Stream) CopyBatch(dst, src []gpu.Addr, n []uint64) error {
	s := &t.d.symbols.cuMemcpyBatchAsync_v2
	if s.fn == 0 {
		s = &t.d.symbols.cuMemcpyBatchAsync
	}
	if len(dst) == 0 || len(dst) != len(src) || len(dst) != len(n) {
		return t.d.fail(s, gpu.ErrInvalidValue, "lists of different lengths, or empty", len(dst), len(src), len(n))
	}
	attributes := &struct {
		attr  memcpyAttributes
		first uint64 // of the copies that attr is for
		fail  uint64
	}{attr: memcpyAttributes{SrcAccessOrder: memcpySrcOrderStream}}
	var c gpu.Code
	if s == &t.d.symbols.cuMemcpyBatchAsync {
		c = t.call(s, ref(&dst[0]), ref(&src[0]), ref(&n[0]), uintptr(len(n)),
			ref(&attributes.attr), ref(&attributes.first), 1, ref(&attributes.fail), t.handle)
	} else {
		c = t.call(s, ref(&dst[0]), ref(&src[0]), ref(&n[0]), uintptr(len(n)),
			ref(&attributes.attr), ref(&attributes.first), 1, t.handle)
	}
	runtime.KeepAlive(dst)
	runtime.KeepAlive(src)
	runtime.KeepAlive(n)
	runtime.KeepAlive(attributes)
	if c != gpu.Success {
		return t.d.fail(s, c, "", len(n), "copies")
	}
	return nil
}

// Done reports whether all work has finished.
func (t *Stream) Done() (bool, error) {
	s := &t.d.symbols.cuStreamQuery
	switch c := t.call(s, t.handle); c {
	case gpu.Success:
		return true, nil
	case gpu.ErrNotReady:
		return false, nil
	default:
		return true, t.d.fail(s, c, "")
	}
}

// Synchronize waits for all work.
func (t *Stream) Synchronize() error {
	s := &t.d.symbols.cuStreamSynchronize
	if c := t.call(s, t.handle); c != gpu.Success {
		return t.d.fail(s, c, "")
	}
	return nil
}

// Close destroys the stream. Work that it holds still runs.
func (t *Stream) Close() error {
	s := &t.d.symbols.cuStreamDestroy
	if t.closed.Swap(true) {
		return t.d.fail(s, t.d.unusable(), "closed before")
	}
	t.d.parts.remove(t)
	if c := t.d.call(s, t.handle); c != gpu.Success {
		return t.d.fail(s, c, "")
	}
	return nil
}
