package cuda

import (
	"runtime"

	"github.com/culvert-io/culvert/gpu"
)

// Pointer looks an address up, whoever allocated it. Of memory that another part
// of the process made the driver does not tell all: what was registered is
// reported as KindHost, and what was imported as KindDevice.
func (d *Device) Pointer(a gpu.Addr) (gpu.Pointer, error) {
	s := &d.symbols.cuPointerGetAttributes
	if c := d.enter(); c != gpu.Success {
		return gpu.Pointer{}, d.fail(s, c, "", a)
	}
	defer d.leave()
	q := newPointerQuery()
	c := s.call(uintptr(len(q.attributes)), ref(&q.attributes), ref(&q.data), uintptr(a))
	runtime.KeepAlive(q)
	switch c {
	case gpu.Success:
	case gpu.ErrInvalidValue, gpu.ErrInvalidContext: // not an address of CUDA's
		return gpu.Pointer{}, nil
	default:
		return gpu.Pointer{}, d.fail(s, c, "", a)
	}
	p := gpu.Pointer{
		Kind: q.kind(), Device: int(int32(q.values.device)),
		Base: gpu.Addr(q.values.start), Size: q.values.size,
		Host: uintptr(q.values.host), SyncMemops: q.values.syncMemops != 0,
	}
	// To the driver, imported memory cannot be exported again, like all memory
	// but virtual memory.
	if _, ok := d.drv.imports.Load(p.Base); ok && p.Kind == gpu.KindDevice {
		p.Kind = gpu.KindVirtual
	}
	switch p.Kind {
	case gpu.KindNone:
		return gpu.Pointer{}, nil
	case gpu.KindVirtual:
		// The range is the reservation, in which other mappings may lie.
		return p, d.addressRange(a, &p.Base, &p.Size)
	case gpu.KindHost:
		if host, n, ok := d.allocs.registered(p.Host); ok {
			p.Kind, p.Base, p.Size = gpu.KindRegistered, a-gpu.Addr(p.Host-host), n
		}
	}
	return p, nil
}

func (d *Device) addressRange(a gpu.Addr, base *gpu.Addr, size *uint64) error {
	s := &d.symbols.cuMemGetAddressRange
	if c := s.call(ref(base), ref(size), uintptr(a)); c != gpu.Success {
		return d.fail(s, c, "", a)
	}
	return nil
}

func (q *pointerQuery) kind() gpu.Kind {
	switch v := &q.values; {
	case v.isManaged != 0:
		return gpu.KindManaged
	case v.memoryType == memoryTypeHost:
		return gpu.KindHost
	case v.memoryType == memoryTypeDevice && v.handleTypes&memHandlePosixFD != 0:
		return gpu.KindVirtual
	case v.memoryType == memoryTypeDevice:
		return gpu.KindDevice
	}
	return gpu.KindNone
}

// SetSyncMemops makes synchronous operations on the allocation complete before
// they return.
func (d *Device) SetSyncMemops(a gpu.Addr, on bool) error {
	v := new(uint32)
	if on {
		*v = 1
	}
	s := &d.symbols.cuPointerSetAttribute
	c := d.call(s, ref(v), pointerSyncMemops, uintptr(a))
	runtime.KeepAlive(v)
	if c != gpu.Success {
		return d.fail(s, c, "", "SYNC_MEMOPS", a)
	}
	return nil
}
