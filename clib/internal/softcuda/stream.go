package softcuda

import (
	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/gpu"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
)

// A stream is a CUstream.
type stream struct {
	ctx   *context
	num   uint64
	flags uint32
	level int32 // its priority
	gpu   *softgpu.Stream
}

// Stream is the GPU's stream of a handle, or the default stream of the thread's
// context.
func (d *Driver) Stream(t *Thread, id handle.ID) (*softgpu.Stream, error) {
	s, err := d.stream(t, id)
	if err != nil {
		return nil, err
	}
	return s.gpu, nil
}

// StreamCreate is cuStreamCreate.
func (d *Driver) StreamCreate(c Call, out cmem.Ptr, flags uint32) error {
	return d.StreamCreateWithPriority(c, out, flags, leastPriority)
}

// StreamCreateWithPriority is cuStreamCreateWithPriority, which clamps a priority that
// is out of range.
func (d *Driver) StreamCreateWithPriority(c Call, out cmem.Ptr, flags uint32, level int32) error {
	level = min(max(level, greatestPriority), leastPriority)
	g, err := c.ctx.gpu.NewStreamFlags(softgpu.StreamFlags(flags))
	if err != nil {
		return err
	}
	d.mu.Lock()
	num := d.id()
	d.mu.Unlock()
	return closeOn(add(d.streams, out, &stream{c.ctx, num, flags, level, g}), g)
}

// StreamDestroy is cuStreamDestroy. Enqueued work is still done.
func (d *Driver) StreamDestroy(_ Call, id handle.ID) error {
	s, ok := d.streams.Remove(id)
	if !ok {
		return gpu.ErrInvalidHandle
	}
	return s.gpu.Close()
}

// StreamSynchronize is cuStreamSynchronize.
func (d *Driver) StreamSynchronize(c Call) error { return c.stream.gpu.Synchronize() }

// StreamQuery is cuStreamQuery.
func (d *Driver) StreamQuery(c Call) error { return ready(c.stream.gpu.Done()) }

// ready turns a query into its code.
func ready(done bool, err error) error {
	if err == nil && !done {
		return gpu.ErrNotReady
	}
	return err
}

// StreamWaitEvent is cuStreamWaitEvent.
func (d *Driver) StreamWaitEvent(c Call, id handle.ID, _ uint32) error {
	e, err := d.event(id)
	if err != nil {
		return err
	}
	return c.stream.gpu.WaitEvent(e.gpu)
}

// LaunchHostFunc is cuLaunchHostFunc.
func (d *Driver) LaunchHostFunc(c Call, fn, user cmem.Ptr) error {
	if fn == 0 {
		return gpu.ErrInvalidValue
	}
	return c.stream.gpu.Do(func() { d.call.HostFunc(fn, user) })
}

// StreamAddCallback is cuStreamAddCallback.
func (d *Driver) StreamAddCallback(c Call, fn, user cmem.Ptr, flags uint32) error {
	if fn == 0 || flags != 0 {
		return gpu.ErrInvalidValue
	}
	return c.stream.gpu.Do(func() { d.call.StreamCallback(fn, c.arg, gpu.Success, user) })
}

// StreamGetFlags is cuStreamGetFlags.
func (d *Driver) StreamGetFlags(c Call, out cmem.Ptr) error { return cmem.Answer(out, c.stream.flags) }

// StreamGetPriority is cuStreamGetPriority.
func (d *Driver) StreamGetPriority(c Call, out cmem.Ptr) error {
	return cmem.Answer(out, c.stream.level)
}

// StreamGetCtx is cuStreamGetCtx.
func (d *Driver) StreamGetCtx(c Call, out cmem.Ptr) error { return cmem.Answer(out, c.stream.ctx.id) }

// StreamGetCtx2 is cuStreamGetCtx_v2; there are no green contexts.
func (d *Driver) StreamGetCtx2(c Call, out, green cmem.Ptr) error {
	cmem.StoreUnlessNull(green, uint64(0))
	return d.StreamGetCtx(c, out)
}

// StreamGetDevice is cuStreamGetDevice.
func (d *Driver) StreamGetDevice(c Call, out cmem.Ptr) error {
	return cmem.Answer(out, c.stream.ctx.dev)
}

// StreamGetId is cuStreamGetId.
func (d *Driver) StreamGetId(c Call, out cmem.Ptr) error { return cmem.Answer(out, c.stream.num) }

// StreamIsCapturing is cuStreamIsCapturing: never, there are no graphs.
func (d *Driver) StreamIsCapturing(_ Call, out cmem.Ptr) error { return cmem.Answer(out, int32(0)) }

// StreamGetCaptureInfo is cuStreamGetCaptureInfo of all releases. The status alone
// is stored where a stream does not capture.
func (d *Driver) StreamGetCaptureInfo(c Call, status cmem.Ptr, _ ...cmem.Ptr) error {
	return d.StreamIsCapturing(c, status)
}

// ThreadExchangeStreamCaptureMode is cuThreadExchangeStreamCaptureMode: libraries put
// calls that must not break a capture between two of them.
func (d *Driver) ThreadExchangeStreamCaptureMode(c Call, mode cmem.Ptr) error {
	const last = 2
	next := cmem.Load[int32](mode)
	if next < 0 || next > last {
		return gpu.ErrInvalidValue
	}
	cmem.Store(mode, c.Capture)
	c.Capture = next
	return nil
}

// MemFreeAsync is cuMemFreeAsync. The memory is freed in the order of the
// stream.
func (d *Driver) MemFreeAsync(c Call, a gpu.Addr) error {
	al, ok := d.take(a, onDevice)
	if !ok {
		return gpu.ErrInvalidValue
	}
	// Free waits for the whole context, so it cannot run on the stream.
	return c.stream.gpu.Do(func() { go al.ctx.gpu.Free(a) })
}

// StreamWaitValue32 is cuStreamWaitValue32.
func (d *Driver) StreamWaitValue32(c Call, a gpu.Addr, v, flags uint32) error {
	return c.waitValue(a, uint64(v), 4, flags)
}

// StreamWaitValue64 is cuStreamWaitValue64.
func (d *Driver) StreamWaitValue64(c Call, a gpu.Addr, v uint64, flags uint32) error {
	return c.waitValue(a, v, 8, flags)
}

func (c Call) waitValue(a gpu.Addr, v uint64, width int, flags uint32) error {
	const flush = 1 << 30
	cond := gpu.Cond(flags &^ flush)
	if cond > gpu.CondNOR {
		return gpu.ErrInvalidValue
	}
	return c.stream.gpu.Wait(a, v, width, cond)
}

// StreamWriteValue32 is cuStreamWriteValue32.
func (d *Driver) StreamWriteValue32(c Call, a gpu.Addr, v, flags uint32) error {
	return c.writeValue(a, uint64(v), 4, flags)
}

// StreamWriteValue64 is cuStreamWriteValue64.
func (d *Driver) StreamWriteValue64(c Call, a gpu.Addr, v uint64, flags uint32) error {
	return c.writeValue(a, v, 8, flags)
}

func (c Call) writeValue(a gpu.Addr, v uint64, width int, flags uint32) error {
	const noBarrier = 1
	if flags&^noBarrier != 0 {
		return gpu.ErrInvalidValue
	}
	return c.stream.gpu.Write(a, v, width)
}
