package softcuda

import (
	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/gpu"
)

// known refuses an address that is nobody's where the call wants the GPU's
// side. A GPU with pageable access takes any.
func (c *context) known(a gpu.Addr, n uint64) error {
	if n == 0 {
		return nil
	}
	p, err := c.gpu.Pointer(a)
	if err != nil || p.Kind != gpu.KindNone {
		return err
	}
	if v, err := c.gpu.Attribute(gpu.AttrPageableMemoryAccess); err == nil && v != 0 {
		return nil
	}
	return gpu.ErrInvalidValue
}

// Copy is a synchronous copy in the current context. Those of the two
// addresses that are given as device must be known to the driver.
func (d *Driver) Copy(t *Thread, dst, src gpu.Addr, n uint64, device ...gpu.Addr) error {
	c, err := d.current(t)
	if err != nil {
		return err
	}
	for _, a := range device {
		if err := c.known(a, n); err != nil {
			return err
		}
	}
	return c.gpu.Copy(dst, src, n)
}

// CopyAsync enqueues a copy.
func (d *Driver) CopyAsync(t *Thread, dst, src gpu.Addr, n uint64, id handle.ID, device ...gpu.Addr) error {
	s, err := d.stream(t, id)
	if err != nil {
		return err
	}
	for _, a := range device {
		if err := s.ctx.known(a, n); err != nil {
			return err
		}
	}
	return s.gpu.Copy(dst, src, n)
}

// Memcpy is cuMemcpy, which looks both addresses up.
func (d *Driver) Memcpy(t *Thread, dst, src gpu.Addr, n uint64) error {
	return d.Copy(t, dst, src, n)
}

// MemcpyHtoD is cuMemcpyHtoD.
func (d *Driver) MemcpyHtoD(t *Thread, dst gpu.Addr, src cmem.Ptr, n uint64) error {
	return d.Copy(t, dst, gpu.Addr(src), n, dst)
}

// MemcpyDtoH is cuMemcpyDtoH.
func (d *Driver) MemcpyDtoH(t *Thread, dst cmem.Ptr, src gpu.Addr, n uint64) error {
	return d.Copy(t, gpu.Addr(dst), src, n, src)
}

// MemcpyDtoD is cuMemcpyDtoD.
func (d *Driver) MemcpyDtoD(t *Thread, dst, src gpu.Addr, n uint64) error {
	return d.Copy(t, dst, src, n, dst, src)
}

// MemcpyPeer is cuMemcpyPeer. Addresses say by themselves where they belong;
// the contexts only have to be contexts.
func (d *Driver) MemcpyPeer(t *Thread, dst gpu.Addr, dstCtx handle.ID, src gpu.Addr, srcCtx handle.ID, n uint64) error {
	if err := d.contextsExist(dstCtx, srcCtx); err != nil {
		return err
	}
	return d.Copy(t, dst, src, n, dst, src)
}

// MemcpyAsync is cuMemcpyAsync.
func (d *Driver) MemcpyAsync(t *Thread, dst, src gpu.Addr, n uint64, id handle.ID) error {
	return d.CopyAsync(t, dst, src, n, id)
}

// MemcpyHtoDAsync is cuMemcpyHtoDAsync.
func (d *Driver) MemcpyHtoDAsync(t *Thread, dst gpu.Addr, src cmem.Ptr, n uint64, id handle.ID) error {
	return d.CopyAsync(t, dst, gpu.Addr(src), n, id, dst)
}

// MemcpyDtoHAsync is cuMemcpyDtoHAsync.
func (d *Driver) MemcpyDtoHAsync(t *Thread, dst cmem.Ptr, src gpu.Addr, n uint64, id handle.ID) error {
	return d.CopyAsync(t, gpu.Addr(dst), src, n, id, src)
}

// MemcpyDtoDAsync is cuMemcpyDtoDAsync.
func (d *Driver) MemcpyDtoDAsync(t *Thread, dst, src gpu.Addr, n uint64, id handle.ID) error {
	return d.CopyAsync(t, dst, src, n, id, dst, src)
}

// MemcpyPeerAsync is cuMemcpyPeerAsync.
func (d *Driver) MemcpyPeerAsync(t *Thread, dst gpu.Addr, dstCtx handle.ID, src gpu.Addr, srcCtx handle.ID, n uint64, id handle.ID) error {
	if err := d.contextsExist(dstCtx, srcCtx); err != nil {
		return err
	}
	return d.CopyAsync(t, dst, src, n, id, dst, src)
}

func (d *Driver) contextsExist(ids ...handle.ID) error {
	for _, id := range ids {
		if _, err := d.context(id); err != nil {
			return err
		}
	}
	return nil
}

// MemcpyBatchAsync is cuMemcpyBatchAsync of CUDA 12.8, which says at which
// copy it failed.
func (d *Driver) MemcpyBatchAsync(t *Thread, dsts, srcs, sizes cmem.Ptr, count uint64, attrs, idxs cmem.Ptr, num uint64, failed cmem.Ptr, id handle.ID) error {
	at, err := d.copyBatch(t, dsts, srcs, sizes, count, id)
	if err != nil && failed != 0 {
		cmem.Store(failed, at)
	}
	return err
}

// MemcpyBatchAsync2 is cuMemcpyBatchAsync of CUDA 13. The attributes are hints
// about when sources are read and where copies run.
func (d *Driver) MemcpyBatchAsync2(t *Thread, dsts, srcs, sizes cmem.Ptr, count uint64, attrs, idxs cmem.Ptr, num uint64, id handle.ID) error {
	_, err := d.copyBatch(t, dsts, srcs, sizes, count, id)
	return err
}

func (d *Driver) copyBatch(t *Thread, dsts, srcs, sizes cmem.Ptr, count uint64, id handle.ID) (at uint64, err error) {
	if count == 0 || id == 0 { // the default stream is not allowed here
		return ^uint64(0), gpu.ErrInvalidValue
	}
	for i := range count {
		off := cmem.Ptr(8 * i)
		dst, src, n := cmem.Load[gpu.Addr](dsts+off), cmem.Load[gpu.Addr](srcs+off), cmem.Load[uint64](sizes+off)
		if err := d.CopyAsync(t, dst, src, n, id); err != nil {
			return i, err
		}
	}
	return 0, nil
}

// Fill is a synchronous fill in the current context.
func (d *Driver) Fill(t *Thread, dst gpu.Addr, value uint32, width int, n uint64) error {
	c, err := d.current(t)
	if err != nil {
		return err
	}
	return c.gpu.Fill(dst, value, width, n)
}

// FillAsync enqueues a fill.
func (d *Driver) FillAsync(t *Thread, dst gpu.Addr, value uint32, width int, n uint64, id handle.ID) error {
	s, err := d.stream(t, id)
	if err != nil {
		return err
	}
	return s.gpu.Fill(dst, value, width, n)
}

// MemsetD8 is cuMemsetD8.
func (d *Driver) MemsetD8(t *Thread, dst gpu.Addr, v uint8, n uint64) error {
	return d.Fill(t, dst, uint32(v), 1, n)
}

// MemsetD16 is cuMemsetD16.
func (d *Driver) MemsetD16(t *Thread, dst gpu.Addr, v uint16, n uint64) error {
	return d.Fill(t, dst, uint32(v), 2, n)
}

// MemsetD32 is cuMemsetD32.
func (d *Driver) MemsetD32(t *Thread, dst gpu.Addr, v uint32, n uint64) error {
	return d.Fill(t, dst, v, 4, n)
}

// MemsetD8Async is cuMemsetD8Async.
func (d *Driver) MemsetD8Async(t *Thread, dst gpu.Addr, v uint8, n uint64, id handle.ID) error {
	return d.FillAsync(t, dst, uint32(v), 1, n, id)
}

// MemsetD16Async is cuMemsetD16Async.
func (d *Driver) MemsetD16Async(t *Thread, dst gpu.Addr, v uint16, n uint64, id handle.ID) error {
	return d.FillAsync(t, dst, uint32(v), 2, n, id)
}

// MemsetD32Async is cuMemsetD32Async.
func (d *Driver) MemsetD32Async(t *Thread, dst gpu.Addr, v uint32, n uint64, id handle.ID) error {
	return d.FillAsync(t, dst, v, 4, n, id)
}
