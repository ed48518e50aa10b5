package softcuda

import (
	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/gpu"
)

// Managed memory is host memory that the software GPU reaches in place, so
// there is nothing to migrate: hints are checked and then have no effect.

// CUmemLocationType.
const (
	locationDevice = 1
	locationHost   = 2
)

// MemAdvise is cuMemAdvise before CUDA 12.2.
func (d *Driver) MemAdvise(t *Thread, a gpu.Addr, n uint64, advice, dev int32) error {
	const cpu = -1
	kind := int32(locationDevice)
	if dev == cpu {
		kind = locationHost
	}
	return d.MemAdviseLocation(t, a, n, advice, kind, dev)
}

// MemAdviseLocation is cuMemAdvise_v2.
func (d *Driver) MemAdviseLocation(t *Thread, a gpu.Addr, n uint64, advice, kind, id int32) error {
	c, err := d.current(t)
	if err != nil {
		return err
	}
	const first, last = 1, 6
	if advice < first || advice > last {
		return gpu.ErrInvalidValue
	}
	return d.checkManaged(c, a, n, kind, id)
}

// MemPrefetchAsync is cuMemPrefetchAsync before CUDA 12.2.
func (d *Driver) MemPrefetchAsync(t *Thread, a gpu.Addr, n uint64, dev int32, id handle.ID) error {
	const cpu = -1
	kind := int32(locationDevice)
	if dev == cpu {
		kind = locationHost
	}
	return d.MemPrefetchLocation(t, a, n, kind, dev, 0, id)
}

// MemPrefetchLocation is cuMemPrefetchAsync_v2.
func (d *Driver) MemPrefetchLocation(t *Thread, a gpu.Addr, n uint64, kind, dev int32, flags uint32, id handle.ID) error {
	s, err := d.stream(t, id)
	if err != nil {
		return err
	}
	if flags != 0 {
		return gpu.ErrInvalidValue
	}
	return d.checkManaged(s.ctx, a, n, kind, dev)
}

func (d *Driver) checkManaged(c *context, a gpu.Addr, n uint64, kind, dev int32) error {
	p, err := c.gpu.Pointer(a)
	if err != nil {
		return err
	}
	if p.Kind != gpu.KindManaged || n == 0 || !p.Contains(a, n) {
		return gpu.ErrInvalidValue
	}
	if kind == locationDevice {
		_, err = d.device(dev)
	}
	return err
}

// StreamAttachMemAsync is cuStreamAttachMemAsync. Every stream may touch
// managed memory here, whatever it is attached to.
func (d *Driver) StreamAttachMemAsync(t *Thread, id handle.ID, a gpu.Addr, n uint64, flags uint32) error {
	s, err := d.stream(t, id)
	if err != nil {
		return err
	}
	if flags != 1 && flags != 2 && flags != 4 {
		return gpu.ErrInvalidValue
	}
	p, err := s.ctx.gpu.Pointer(a)
	if err == nil && p.Kind != gpu.KindManaged {
		return gpu.ErrInvalidValue
	}
	return err
}
