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
	gpu   *softgpu.Stream
}

// The streams that have no handle: NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD.
const lastDefault handle.ID = 2

// stream finds the stream that work is for.
func (d *Driver) stream(t *Thread, id handle.ID) (*stream, error) {
	if id <= lastDefault {
		c, err := d.current(t)
		if err != nil {
			return nil, err
		}
		s, err := c.gpu.DefaultStream()
		if err != nil {
			return nil, err
		}
		return &stream{ctx: c, gpu: s}, nil
	}
	if _, err := d.machine(); err != nil {
		return nil, err
	}
	s, ok := d.streams.Get(id)
	if !ok {
		return nil, gpu.ErrInvalidHandle
	}
	return s, nil
}

// StreamCreate is cuStreamCreate.
func (d *Driver) StreamCreate(t *Thread, out cmem.Ptr, flags uint32) error {
	c, err := d.current(t)
	if err != nil {
		return err
	}
	g, err := c.gpu.NewStreamFlags(softgpu.StreamFlags(flags))
	if err != nil {
		return err
	}
	id, ok := d.streams.Add(&stream{c, d.id(), flags, g})
	if !ok {
		g.Close()
		return gpu.ErrOutOfMemory
	}
	cmem.Store(out, id)
	return nil
}

// StreamCreateWithPriority is cuStreamCreateWithPriority: a priority out of
// range is brought into it, and the range is one value wide.
func (d *Driver) StreamCreateWithPriority(t *Thread, out cmem.Ptr, flags uint32, _ int32) error {
	return d.StreamCreate(t, out, flags)
}

// StreamDestroy is cuStreamDestroy: work that is enqueued is still done.
func (d *Driver) StreamDestroy(_ *Thread, id handle.ID) error {
	if _, err := d.machine(); err != nil {
		return err
	}
	s, ok := d.streams.Remove(id)
	if !ok {
		return gpu.ErrInvalidHandle
	}
	return s.gpu.Close()
}

// StreamSynchronize is cuStreamSynchronize.
func (d *Driver) StreamSynchronize(t *Thread, id handle.ID) error {
	s, err := d.stream(t, id)
	if err != nil {
		return err
	}
	return s.gpu.Synchronize()
}

// StreamQuery is cuStreamQuery.
func (d *Driver) StreamQuery(t *Thread, id handle.ID) error {
	s, err := d.stream(t, id)
	if err != nil {
		return err
	}
	done, err := s.gpu.Done()
	if err == nil && !done {
		return gpu.ErrNotReady
	}
	return err
}

// StreamWaitEvent is cuStreamWaitEvent.
func (d *Driver) StreamWaitEvent(t *Thread, id, ev handle.ID, _ uint32) error {
	s, err := d.stream(t, id)
	if err != nil {
		return err
	}
	e, ok := d.events.Get(ev)
	if !ok {
		return gpu.ErrInvalidHandle
	}
	return s.gpu.WaitEvent(e.gpu)
}

// LaunchHostFunc is cuLaunchHostFunc.
func (d *Driver) LaunchHostFunc(t *Thread, id handle.ID, fn, user cmem.Ptr) error {
	s, err := d.stream(t, id)
	if err != nil {
		return err
	}
	if fn == 0 {
		return gpu.ErrInvalidValue
	}
	return s.gpu.Do(func() { d.call.HostFunc(fn, user) })
}

// StreamAddCallback is cuStreamAddCallback.
func (d *Driver) StreamAddCallback(t *Thread, id handle.ID, fn, user cmem.Ptr, flags uint32) error {
	s, err := d.stream(t, id)
	if err != nil {
		return err
	}
	if fn == 0 || flags != 0 {
		return gpu.ErrInvalidValue
	}
	return s.gpu.Do(func() { d.call.StreamCallback(fn, id, gpu.Success, user) })
}

// StreamGetFlags is cuStreamGetFlags.
func (d *Driver) StreamGetFlags(t *Thread, id handle.ID, out cmem.Ptr) error {
	s, err := d.stream(t, id)
	if err != nil {
		return err
	}
	cmem.Store(out, s.flags)
	return nil
}

// StreamGetPriority is cuStreamGetPriority.
func (d *Driver) StreamGetPriority(t *Thread, id handle.ID, out cmem.Ptr) error {
	if _, err := d.stream(t, id); err != nil {
		return err
	}
	cmem.Store(out, int32(0))
	return nil
}

// StreamGetCtx is cuStreamGetCtx.
func (d *Driver) StreamGetCtx(t *Thread, id handle.ID, out cmem.Ptr) error {
	s, err := d.stream(t, id)
	if err != nil {
		return err
	}
	cmem.Store(out, s.ctx.id)
	return nil
}

// StreamGetCtx2 is cuStreamGetCtx_v2; there are no green contexts.
func (d *Driver) StreamGetCtx2(t *Thread, id handle.ID, out, green cmem.Ptr) error {
	if green != 0 {
		cmem.Store(green, uint64(0))
	}
	return d.StreamGetCtx(t, id, out)
}

// StreamGetDevice is cuStreamGetDevice.
func (d *Driver) StreamGetDevice(t *Thread, id handle.ID, out cmem.Ptr) error {
	s, err := d.stream(t, id)
	if err != nil {
		return err
	}
	cmem.Store(out, s.ctx.dev)
	return nil
}

// StreamGetId is cuStreamGetId.
func (d *Driver) StreamGetId(t *Thread, id handle.ID, out cmem.Ptr) error {
	s, err := d.stream(t, id)
	if err != nil {
		return err
	}
	cmem.Store(out, s.num)
	return nil
}

// StreamIsCapturing is cuStreamIsCapturing: never, there are no graphs.
func (d *Driver) StreamIsCapturing(t *Thread, id handle.ID, out cmem.Ptr) error {
	if _, err := d.stream(t, id); err != nil {
		return err
	}
	cmem.Store(out, int32(0))
	return nil
}

// MemAllocAsync is cuMemAllocAsync. The memory is there at once, which is
// earlier than promised.
func (d *Driver) MemAllocAsync(t *Thread, out cmem.Ptr, n uint64, id handle.ID) error {
	if _, err := d.stream(t, id); err != nil {
		return err
	}
	return d.MemAlloc(t, out, n)
}

// MemFreeAsync is cuMemFreeAsync: the memory goes when the stream gets there.
func (d *Driver) MemFreeAsync(t *Thread, a gpu.Addr, id handle.ID) error {
	s, err := d.stream(t, id)
	if err != nil {
		return err
	}
	al, ok := d.take(a, onDevice)
	if !ok {
		return gpu.ErrInvalidValue
	}
	// Freeing waits for the whole context, so it cannot happen on the stream.
	return s.gpu.Do(func() { go al.ctx.gpu.Free(a) })
}
