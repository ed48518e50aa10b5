package cuda

import (
	"runtime"
	"sync"

	"github.com/culvert-io/culvert/gpu"
)

// Pointer looks an address up, also one that another library allocated. Of such
// memory, the driver reports registered memory as KindHost and imported memory
// as KindDevice.
func (d *Device) Pointer(a gpu.Addr) (gpu.Pointer, error) {
	s := &d.symbols.cuPointerGetAttributes
	if err := d.check(s, d.enter(), a); err != nil {
		return gpu.Pointer{}, err
	}
	defer d.leave()
	q := newPointerQuery()
	c := s.call(uintptr(len(q.attributes)), ref(&q.attributes), ref(&q.data), uintptr(a))
	runtime.KeepAlive(q)
	switch c {
	case gpu.Success:
	case gpu.ErrInvalidValue, gpu.ErrInvalidContext: // an address that CUDA does not know
		return gpu.Pointer{}, nil
	default:
		return gpu.Pointer{}, d.fail(s, c, "", a)
	}
	p := gpu.Pointer{
		Kind: q.kind(), Device: int(int32(q.values.device)),
		Base: gpu.Addr(q.values.start), Size: q.values.size,
		Host: uintptr(q.values.host), SyncMemops: q.values.syncMemops != 0,
	}
	// The driver reports imported memory as not exportable, like device memory.
	if _, ok := d.drv.imports.Load(p.Base); ok && p.Kind == gpu.KindDevice {
		p.Kind = gpu.KindVirtual
	}
	switch p.Kind {
	case gpu.KindNone:
		return gpu.Pointer{}, nil
	case gpu.KindVirtual:
		// The range so far is the reservation, which may contain other mappings.
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
	return d.check(s, s.call(ref(base), ref(size), uintptr(a)), a)
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
	return d.check(s, c, "SYNC_MEMOPS", a)
}

// bufferIDs is memory for the driver's results: BufferID is called for every
// transfer and must not allocate.
var bufferIDs = sync.Pool{New: func() any { return new(uint64) }}

// BufferID is the number of the allocation at a, which is unique in the life of
// the process. It is much faster than Pointer.
func (d *Device) BufferID(a gpu.Addr) (uint64, error) {
	v := bufferIDs.Get().(*uint64)
	defer bufferIDs.Put(v)
	*v = 0
	s := &d.symbols.cuPointerGetAttribute
	if c := d.call(s, ref(v), pointerBufferID, uintptr(a)); c != gpu.Success {
		return 0, d.fail(s, c, "", "BUFFER_ID", a)
	}
	return *v, nil
}
