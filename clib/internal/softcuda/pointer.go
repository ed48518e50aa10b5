package softcuda

import (
	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/gpu"
)

// CUpointer_attribute, as far as it is answered.
const (
	attrContext       = 1
	attrMemoryType    = 2
	attrDevicePointer = 3
	attrHostPointer   = 4
	attrSyncMemops    = 6
	attrBufferID      = 7
	attrIsManaged     = 8
	attrDeviceOrdinal = 9
	attrIPCCapable    = 10
	attrRangeStart    = 11
	attrRangeSize     = 12
	attrMapped        = 13
	attrHandleTypes   = 14
	attrRDMACapable   = 15
	attrAccessFlags   = 16
	attrMemPool       = 17
)

// CUmemorytype.
const (
	memoryHost   int32 = 1
	memoryDevice int32 = 2
)

// A Pointer describes an address.
type Pointer struct {
	gpu.Pointer
	Addr    gpu.Addr
	Context handle.ID // 0 for memory that the program did not allocate
	Buffer  uint64
}

// Pointer looks an address up. An unknown one has KindNone. It needs no current
// context.
func (d *Driver) Pointer(c Call, a gpu.Addr) (p Pointer, err error) {
	p.Addr = a
	look := func(g gpu.Device) (err error) {
		p.Pointer, err = g.Pointer(a)
		return err
	}
	if x, none := d.current(c.Thread); none == nil {
		err = look(x.gpu)
	} else {
		err = d.visit(0, look)
	}
	if err != nil || p.Kind == gpu.KindNone {
		return p, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if al := d.allocs[p.Base]; al != nil {
		p.Context, p.Buffer = al.ctx.id, al.id
	}
	return p, nil
}

// PointerGetAttribute is cuPointerGetAttribute.
func (d *Driver) PointerGetAttribute(c Call, out cmem.Ptr, attr int32, a gpu.Addr) error {
	p, err := d.Pointer(c, a)
	if err != nil {
		return err
	}
	if p.Kind == gpu.KindNone || attr == attrHostPointer && p.Kind.OnDevice() {
		return gpu.ErrInvalidValue
	}
	return p.store(out, attr)
}

// PointerGetAttributes is cuPointerGetAttributes. An unknown address is no
// error: its attributes are zero.
func (d *Driver) PointerGetAttributes(c Call, n uint32, attrs, outs cmem.Ptr, a gpu.Addr) error {
	p, err := d.Pointer(c, a)
	if err != nil {
		return err
	}
	for i := range int(n) {
		out := cmem.Load[cmem.Ptr](cmem.At[cmem.Ptr](outs, i))
		if out == 0 {
			return gpu.ErrInvalidValue
		}
		if err := p.store(out, cmem.Load[int32](cmem.At[int32](attrs, i))); err != nil {
			return err
		}
	}
	return nil
}

// store stores an attribute in its C type.
func (p *Pointer) store(out cmem.Ptr, attr int32) error {
	known := p.Kind != gpu.KindNone
	device := p.Kind.OnDevice()
	switch attr {
	case attrContext:
		cmem.Store(out, p.Context)
	case attrMemoryType:
		cmem.Store(out, p.memoryType())
	case attrDevicePointer:
		cmem.Store(out, when(known, p.Addr))
	case attrHostPointer:
		cmem.Store(out, uint64(p.Host))
	case attrSyncMemops:
		cmem.Store(out, flag(p.SyncMemops))
	case attrBufferID:
		cmem.Store(out, p.Buffer)
	case attrIsManaged:
		cmem.Store(out, flag(p.Kind == gpu.KindManaged))
	case attrDeviceOrdinal:
		cmem.Store(out, p.ordinal())
	case attrIPCCapable:
		cmem.Store(out, flag(false))
	case attrRangeStart:
		cmem.Store(out, p.Base)
	case attrRangeSize:
		cmem.Store(out, p.Size)
	case attrMapped:
		cmem.Store(out, flag(known))
	case attrHandleTypes:
		cmem.Store(out, uint64(flag(p.Kind == gpu.KindVirtual))) // bit 0: a POSIX descriptor
	case attrRDMACapable:
		cmem.Store(out, flag(device))
	case attrAccessFlags:
		cmem.Store(out, when(known, int32(3))) // read and write
	case attrMemPool:
		cmem.Store(out, uint64(0))
	default:
		return gpu.ErrInvalidValue
	}
	return nil
}

// memoryType is device for managed memory, as in CUDA.
func (p *Pointer) memoryType() int32 {
	switch p.Kind {
	case gpu.KindNone:
		return 0
	case gpu.KindHost, gpu.KindRegistered:
		return memoryHost
	}
	return memoryDevice
}

// ordinal is CU_DEVICE_INVALID for an unknown address.
func (p *Pointer) ordinal() int32 {
	if p.Kind == gpu.KindNone {
		return -2
	}
	return int32(p.Device)
}

func when[T any](ok bool, v T) T {
	if ok {
		return v
	}
	var zero T
	return zero
}

func flag(on bool) uint32 {
	if on {
		return 1
	}
	return 0
}

// PointerSetAttribute is cuPointerSetAttribute, for SYNC_MEMOPS only.
func (d *Driver) PointerSetAttribute(c Call, value cmem.Ptr, attr int32, a gpu.Addr) error {
	if attr != attrSyncMemops {
		return gpu.ErrInvalidValue
	}
	return c.ctx.gpu.SetSyncMemops(a, cmem.Load[uint32](value) != 0)
}
