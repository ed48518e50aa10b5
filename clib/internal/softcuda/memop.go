package softcuda

import (
	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/gpu"
)

// Flags of cuStreamWaitValue beside the condition.
const waitFlush = 1 << 30

func (d *Driver) waitValue(t *Thread, id handle.ID, a gpu.Addr, v uint64, width int, flags uint32) error {
	s, err := d.stream(t, id)
	if err != nil {
		return err
	}
	cond := gpu.Cond(flags &^ waitFlush)
	if cond > gpu.CondNOR {
		return gpu.ErrInvalidValue
	}
	return s.gpu.Wait(a, v, width, cond)
}

func (d *Driver) writeValue(t *Thread, id handle.ID, a gpu.Addr, v uint64, width int, flags uint32) error {
	const noBarrier = 1
	s, err := d.stream(t, id)
	if err != nil {
		return err
	}
	if flags&^noBarrier != 0 {
		return gpu.ErrInvalidValue
	}
	return s.gpu.Write(a, v, width)
}

// StreamWaitValue32 is cuStreamWaitValue32.
func (d *Driver) StreamWaitValue32(t *Thread, id handle.ID, a gpu.Addr, v, flags uint32) error {
	return d.waitValue(t, id, a, uint64(v), 4, flags)
}

// StreamWaitValue64 is cuStreamWaitValue64.
func (d *Driver) StreamWaitValue64(t *Thread, id handle.ID, a gpu.Addr, v uint64, flags uint32) error {
	return d.waitValue(t, id, a, v, 8, flags)
}

// StreamWriteValue32 is cuStreamWriteValue32.
func (d *Driver) StreamWriteValue32(t *Thread, id handle.ID, a gpu.Addr, v, flags uint32) error {
	return d.writeValue(t, id, a, uint64(v), 4, flags)
}

// StreamWriteValue64 is cuStreamWriteValue64.
func (d *Driver) StreamWriteValue64(t *Thread, id handle.ID, a gpu.Addr, v uint64, flags uint32) error {
	return d.writeValue(t, id, a, v, 8, flags)
}
