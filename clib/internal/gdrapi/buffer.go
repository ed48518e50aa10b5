package gdrapi

import (
	"errors"
	"fmt"
	"structs"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/gdrcopy"
	"github.com/culvert-io/culvert/gpu"
)

// pageSize is that of the pages that gdrdrv pins.
const pageSize = 1 << 16

// Flags of gdr_pin_buffer_v2.
const forcePCIe = 1

// Pin is gdr_pin_buffer. Tokens are obsolete, and GDRCopy ignores them, too.
func (a *API) Pin(g handle.ID, addr, size, _ uint64, _ uint32, out cmem.Ptr) error {
	return a.PinV2(g, addr, size, 0, out)
}

// PinV2 is gdr_pin_buffer_v2.
func (a *API) PinV2(g handle.ID, addr, size uint64, flags uint32, out cmem.Ptr) error {
	s, err := a.session(g)
	if err != nil {
		return err
	}
	switch {
	case flags&^forcePCIe != 0:
		return fmt.Errorf("unknown flags %#x: %w", flags, syscall.EINVAL)
	case flags != 0 && s.module != nil:
		return fmt.Errorf("GDR_PIN_FLAG_FORCE_PCIE is not supported over gdrdrv: %w", syscall.EINVAL)
	case size == 0 || addr+size < addr:
		return fmt.Errorf("%d bytes at %#x: %w", size, addr, syscall.EINVAL)
	}
	cmem.Touch(out)
	on, err := s.at(gpu.Addr(addr))
	if err != nil {
		return err
	}
	if s.module != nil { // programs map all pages that gdrdrv pins
		size = (addr+size+pageSize-1)&^(pageSize-1) - addr
	}
	p, err := on.Pin(gpu.Addr(addr), size)
	if err != nil {
		return err
	}
	id, ok := a.buffers.Add(&buffer{Buffer: p, session: g, addr: gpu.Addr(addr)})
	if !ok {
		return errors.Join(syscall.ENOMEM, p.Unpin())
	}
	return cmem.Answer(out, id)
}

// Unpin is gdr_unpin_buffer.
func (a *API) Unpin(g, id handle.ID) error {
	b, err := a.buffer(g, id)
	if err != nil {
		return err
	}
	a.buffers.Remove(id)
	b.base.Store(0)
	return b.Unpin()
}

// CallbackFlag is gdr_get_callback_flag.
func (a *API) CallbackFlag(g, id handle.ID, out cmem.Ptr) error {
	b, err := a.buffer(g, id)
	if err != nil {
		return err
	}
	revoked, err := b.Revoked()
	return cmem.Put(out, boolean(revoked), err)
}

// info is gdr_info_v2_t. The cycles are obsolete, and 0 here.
type info struct {
	_           structs.HostLayout
	VA          uint64
	MappedSize  uint64
	PageSize    uint32
	_           uint32
	TMCycles    uint64
	CyclesPerMS uint32
	Bits        uint32 // mapped, wc_mapping
	Type        uint32
	_           uint32
}

const (
	bitMapped = 1 << iota
	bitWC
)

// Info is gdr_get_info_v2.
func (a *API) Info(g, id handle.ID, out cmem.Ptr) error {
	b, err := a.buffer(g, id)
	if err != nil {
		return err
	}
	i, err := b.Buffer.Info()
	if err != nil {
		return err
	}
	v := info{VA: uint64(i.VA), MappedSize: i.MappedSize, PageSize: i.PageSize, Type: uint32(i.Type)}
	if i.Mapped {
		v.Bits |= bitMapped
	}
	if i.Type == gdrcopy.MappingWC {
		v.Bits |= bitWC
	}
	return cmem.Answer(out, v)
}

// Flags of gdr_map_v2, which are mapping types.
const lastMapFlag = int32(gdrcopy.MappingDevice)

// Map is gdr_map.
func (a *API) Map(g, id handle.ID, out cmem.Ptr, size uint64) error {
	return a.MapV2(g, id, out, size, 0)
}

// MapV2 is gdr_map_v2. The mapping begins with the first page of the pin.
func (a *API) MapV2(g, id handle.ID, out cmem.Ptr, size uint64, flags int32) error {
	b, err := a.buffer(g, id)
	if err != nil {
		return err
	}
	i, err := b.Buffer.Info()
	switch {
	case err != nil:
		return err
	case flags < 0 || flags > lastMapFlag:
		return fmt.Errorf("unknown flags %#x: %w", flags, syscall.EINVAL)
	case flags > int32(gdrcopy.MappingWC):
		return fmt.Errorf("the platform maps GPU memory write-combining only: %w", syscall.EOPNOTSUPP)
	case i.VA != b.addr:
		return fmt.Errorf("%v does not begin on a page of %d bytes: %w", b.addr, i.PageSize, syscall.EINVAL)
	case size == 0 || size > i.MappedSize:
		return fmt.Errorf("%d of %d bytes: %w", size, i.MappedSize, syscall.EINVAL)
	}
	cmem.Touch(out)
	if err := b.Buffer.Map(); err != nil {
		return err
	}
	// Children do not inherit the mapping: as gdrdrv has it, also without gdrdrv.
	if err := unix.Madvise(b.Bytes(), unix.MADV_DONTFORK); err != nil {
		return errors.Join(err, b.Buffer.Unmap())
	}
	base := address(b.Bytes())
	b.base.Store(uint64(base))
	return cmem.Answer(out, base)
}

// Unmap is gdr_unmap.
func (a *API) Unmap(g, id handle.ID, at cmem.Ptr, _ uint64) error {
	b, err := a.buffer(g, id)
	if err != nil {
		return err
	}
	if base := b.base.Load(); base == 0 || base != uint64(at) {
		return fmt.Errorf("%#x is not the mapping of the handle: %w", at, syscall.EINVAL)
	}
	b.base.Store(0)
	return b.Buffer.Unmap()
}

// CopyTo is gdr_copy_to_mapping.
func (a *API) CopyTo(id handle.ID, to, from cmem.Ptr, n uint64) error {
	b, off, err := a.mapped(id, to, n)
	if err != nil || n == 0 {
		return err
	}
	return b.Buffer.CopyTo(off, cmem.Bulk(from, int(n)))
}

// CopyFrom is gdr_copy_from_mapping.
func (a *API) CopyFrom(id handle.ID, to, from cmem.Ptr, n uint64) error {
	b, off, err := a.mapped(id, from, n)
	if err != nil || n == 0 {
		return err
	}
	return b.Buffer.CopyFrom(cmem.Bulk(to, int(n)), off)
}

// mapped returns a mapped buffer and the offset in it of an address, from which n bytes
// are to be copied.
func (a *API) mapped(id handle.ID, at cmem.Ptr, n uint64) (*buffer, uint64, error) {
	b, err := a.any(id)
	if err != nil {
		return nil, 0, err
	}
	base := b.base.Load()
	if n > 1<<62 {
		return nil, 0, syscall.EINVAL
	}
	if base == 0 || uint64(at) < base {
		return nil, 0, fmt.Errorf("%#x is not in a mapping of the handle: %w", at, syscall.EINVAL)
	}
	return b, uint64(at) - base, nil
}
