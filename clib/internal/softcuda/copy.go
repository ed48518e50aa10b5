package softcuda

import (
	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/hostmem"
)

// A method of this file is two C functions: the one that waits, and the one
// with a stream, whose name ends in Async.

// A copier copies and fills memory: a device waits for the end, a stream does not.
type copier interface {
	Copy(dst, src gpu.Addr, n uint64) error
	Fill(dst gpu.Addr, value uint32, width int, n uint64) error
}

func (c Call) copier() copier {
	if c.stream != nil {
		return c.stream.gpu
	}
	return c.ctx.gpu
}

// known rejects an unknown address that the call claims to be the GPU's. A GPU
// with pageable access accepts any.
func (x *context) known(a gpu.Addr, n uint64) error {
	if n == 0 {
		return nil
	}
	p, err := x.gpu.Pointer(a)
	if err != nil || p.Kind != gpu.KindNone {
		return err
	}
	if v, err := x.gpu.Attribute(gpu.AttrPageableMemoryAccess); err == nil && v != 0 {
		return nil
	}
	return gpu.ErrInvalidValue
}

// Copy is cuMemcpy, which looks both addresses up. Those that are given as device
// must be known to the driver.
func (d *Driver) Copy(c Call, dst, src gpu.Addr, n uint64, device ...gpu.Addr) error {
	for _, a := range device {
		if err := c.ctx.known(a, n); err != nil {
			return err
		}
	}
	if !c.ctx.there(dst, n) || !c.ctx.there(src, n) {
		return gpu.ErrInvalidValue
	}
	return c.copier().Copy(dst, src, n)
}

// there rejects host memory that does not exist. Memory that cannot be read or written
// is found while it is copied.
func (x *context) there(a gpu.Addr, n uint64) bool {
	p, err := x.gpu.Pointer(a)
	return err != nil || p.Kind != gpu.KindNone || n == 0 || hostmem.Mapped(uint64(a), n)
}

// MemcpyHtoD is cuMemcpyHtoD.
func (d *Driver) MemcpyHtoD(c Call, dst gpu.Addr, src cmem.Ptr, n uint64) error {
	return d.Copy(c, dst, gpu.Addr(src), n, dst)
}

// MemcpyDtoH is cuMemcpyDtoH.
func (d *Driver) MemcpyDtoH(c Call, dst cmem.Ptr, src gpu.Addr, n uint64) error {
	return d.Copy(c, gpu.Addr(dst), src, n, src)
}

// MemcpyDtoD is cuMemcpyDtoD.
func (d *Driver) MemcpyDtoD(c Call, dst, src gpu.Addr, n uint64) error {
	return d.Copy(c, dst, src, n, dst, src)
}

// MemcpyPeer is cuMemcpyPeer. Addresses imply their GPU; the contexts only have
// to exist.
func (d *Driver) MemcpyPeer(c Call, dst gpu.Addr, dstCtx handle.ID, src gpu.Addr, srcCtx handle.ID, n uint64) error {
	if !d.Alive(dstCtx) || !d.Alive(srcCtx) {
		return gpu.ErrInvalidContext
	}
	return d.Copy(c, dst, src, n, dst, src)
}

// MemcpyBatchAsync is cuMemcpyBatchAsync of CUDA 12.8, which tells the copy that
// failed.
func (d *Driver) MemcpyBatchAsync(c Call, dsts, srcs, sizes cmem.Ptr, count uint64, attrs, idxs cmem.Ptr, num uint64, failed cmem.Ptr) error {
	at, err := d.copyBatch(c, dsts, srcs, sizes, count)
	if err != nil && failed != 0 {
		cmem.Store(failed, at)
	}
	return err
}

// MemcpyBatchAsync2 is cuMemcpyBatchAsync of CUDA 13. The attributes are hints about
// when sources are read and where copies run.
func (d *Driver) MemcpyBatchAsync2(c Call, dsts, srcs, sizes cmem.Ptr, count uint64, attrs, idxs cmem.Ptr, num uint64) error {
	_, err := d.copyBatch(c, dsts, srcs, sizes, count)
	return err
}

// MemcpyWithAttributesAsync is cuMemcpyWithAttributesAsync: a batch of one.
func (d *Driver) MemcpyWithAttributesAsync(c Call, dst, src gpu.Addr, n uint64, _ cmem.Ptr) error {
	if c.arg == 0 {
		return gpu.ErrInvalidValue
	}
	return d.Copy(c, dst, src, n)
}

func (d *Driver) copyBatch(c Call, dsts, srcs, sizes cmem.Ptr, count uint64) (at uint64, err error) {
	if count == 0 || c.arg == 0 { // the default stream is not allowed here
		return ^uint64(0), gpu.ErrInvalidValue
	}
	for i := range count {
		off := cmem.Ptr(8 * i)
		dst, src, n := cmem.Load[gpu.Addr](dsts+off), cmem.Load[gpu.Addr](srcs+off), cmem.Load[uint64](sizes+off)
		if err := d.Copy(c, dst, src, n); err != nil {
			return i, err
		}
	}
	return 0, nil
}

// Fill fills memory with values of width bytes.
func (d *Driver) Fill(c Call, dst gpu.Addr, value uint32, width int, n uint64) error {
	return c.copier().Fill(dst, value, width, n)
}

// MemsetD8 is cuMemsetD8.
func (d *Driver) MemsetD8(c Call, dst gpu.Addr, v uint8, n uint64) error {
	return d.Fill(c, dst, uint32(v), 1, n)
}

// MemsetD16 is cuMemsetD16.
func (d *Driver) MemsetD16(c Call, dst gpu.Addr, v uint16, n uint64) error {
	return d.Fill(c, dst, uint32(v), 2, n)
}

// MemsetD32 is cuMemsetD32.
func (d *Driver) MemsetD32(c Call, dst gpu.Addr, v uint32, n uint64) error {
	return d.Fill(c, dst, v, 4, n)
}
