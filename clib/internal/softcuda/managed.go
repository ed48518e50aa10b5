package softcuda

import "github.com/culvert-io/culvert/gpu"

// Managed memory is host memory that the software GPU accesses in place. There
// is nothing to migrate: hints are checked and have no effect.

// CUmemLocationType.
const (
	locationDevice = 1
	locationHost   = 2
)

// location is what CUDA before 12.2 calls a device: -1 is the CPU.
func location(dev int32) int32 {
	if dev == -1 {
		return locationHost
	}
	return locationDevice
}

// MemAdvise is cuMemAdvise before CUDA 12.2.
func (d *Driver) MemAdvise(c Call, a gpu.Addr, n uint64, advice, dev int32) error {
	return d.MemAdviseLocation(c, a, n, advice, location(dev), dev)
}

// MemAdviseLocation is cuMemAdvise_v2.
func (d *Driver) MemAdviseLocation(c Call, a gpu.Addr, n uint64, advice, kind, dev int32) error {
	const first, last = 1, 6
	if advice < first || advice > last {
		return gpu.ErrInvalidValue
	}
	return d.checkManaged(c, a, n, kind, dev)
}

// MemPrefetchAsync is cuMemPrefetchAsync before CUDA 12.2.
func (d *Driver) MemPrefetchAsync(c Call, a gpu.Addr, n uint64, dev int32) error {
	return d.checkManaged(c, a, n, location(dev), dev)
}

// MemPrefetchLocation is cuMemPrefetchAsync_v2.
func (d *Driver) MemPrefetchLocation(c Call, a gpu.Addr, n uint64, kind, dev int32, flags uint32) error {
	if flags != 0 {
		return gpu.ErrInvalidValue
	}
	return d.checkManaged(c, a, n, kind, dev)
}

func (d *Driver) checkManaged(c Call, a gpu.Addr, n uint64, kind, dev int32) error {
	p, err := c.ctx.gpu.Pointer(a)
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

// StreamAttachMemAsync is cuStreamAttachMemAsync. Every stream may access
// managed memory here.
func (d *Driver) StreamAttachMemAsync(c Call, a gpu.Addr, n uint64, flags uint32) error {
	if flags != 1 && flags != 2 && flags != 4 {
		return gpu.ErrInvalidValue
	}
	p, err := c.ctx.gpu.Pointer(a)
	if err == nil && p.Kind != gpu.KindManaged {
		return gpu.ErrInvalidValue
	}
	return err
}
