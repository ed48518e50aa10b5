package softcuda

import (
	"encoding/binary"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/gpu"
)

// A pointerAttribute is a CUpointer_attribute: its size in C, and its value for
// a known address. For an unknown one it is 0, or the value of unknown.
type pointerAttribute struct {
	size    int
	unknown int64
	of      func(*Pointer) uint64
}

const (
	attrHostPointer = 4
	attrSyncMemops  = 6
)

var pointerAttributes = map[int32]pointerAttribute{
	1:               {8, 0, func(p *Pointer) uint64 { return uint64(p.Context) }},                               // CONTEXT
	2:               {4, 0, (*Pointer).memoryType},                                                              // MEMORY_TYPE
	3:               {8, 0, func(p *Pointer) uint64 { return uint64(p.Addr) }},                                  // DEVICE_POINTER
	attrHostPointer: {8, 0, func(p *Pointer) uint64 { return uint64(p.Host) }},                                  // HOST_POINTER
	5:               {16, 0, func(*Pointer) uint64 { return 0 }},                                                // P2P_TOKENS: kernel modules get 0 for both
	attrSyncMemops:  {4, 0, func(p *Pointer) uint64 { return uint64(flag(p.SyncMemops)) }},                      // SYNC_MEMOPS
	7:               {8, 0, func(p *Pointer) uint64 { return p.Buffer }},                                        // BUFFER_ID
	8:               {4, 0, func(p *Pointer) uint64 { return flag(p.Kind == gpu.KindManaged) }},                 // IS_MANAGED
	9:               {4, -2, func(p *Pointer) uint64 { return uint64(p.Device) }},                               // DEVICE_ORDINAL, or CU_DEVICE_INVALID
	10:              {4, 0, func(p *Pointer) uint64 { return flag(p.Kind == gpu.KindDevice && p.Buffer != 0) }}, // IS_LEGACY_CUDA_IPC_CAPABLE: not virtual memory
	11:              {8, 0, func(p *Pointer) uint64 { return uint64(p.Base) }},                                  // RANGE_START_ADDR
	12:              {8, 0, func(p *Pointer) uint64 { return p.Size }},                                          // RANGE_SIZE
	13:              {4, 0, func(*Pointer) uint64 { return 1 }},                                                 // MAPPED
	14:              {8, 0, func(p *Pointer) uint64 { return flag(p.Kind == gpu.KindVirtual) }},                 // ALLOWED_HANDLE_TYPES: a POSIX descriptor
	15:              {4, 0, func(p *Pointer) uint64 { return uint64(flag(p.Kind.OnDevice())) }},                 // IS_GPU_DIRECT_RDMA_CAPABLE
	16:              {4, 0, func(*Pointer) uint64 { return 3 }},                                                 // ACCESS_FLAGS: read and write
	17:              {8, 0, func(*Pointer) uint64 { return 0 }},                                                 // MEMPOOL_HANDLE
	18:              {8, 0, func(p *Pointer) uint64 { return p.Size }},                                          // MAPPING_SIZE
	19:              {8, 0, func(p *Pointer) uint64 { return uint64(p.Base) }},                                  // MAPPING_BASE_ADDR
	20:              {8, 0, func(p *Pointer) uint64 { return p.Buffer }},                                        // MEMORY_BLOCK_ID
	21:              {4, 0, func(*Pointer) uint64 { return 0 }},                                                 // IS_HW_DECOMPRESS_CAPABLE
}

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
	x, ok := pointerAttributes[attr]
	if !ok {
		return gpu.ErrInvalidValue
	}
	v := uint64(x.unknown)
	if p.Kind != gpu.KindNone {
		v = x.of(p)
	}
	cmem.StoreAll(out, binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, v), 0)[:x.size])
	return nil
}

// memoryType is a CUmemorytype: device for managed memory, as in CUDA.
func (p *Pointer) memoryType() uint64 {
	const host, device = 1, 2
	if p.Kind == gpu.KindHost || p.Kind == gpu.KindRegistered {
		return host
	}
	return device
}

func flag(on bool) uint64 {
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
