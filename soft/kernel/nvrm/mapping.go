package nvrm

import (
	"errors"
	"os"
	"slices"

	"github.com/culvert-io/culvert/internal/abi/nvrm"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
)

// A mapping is memory with an address in BAR1. The CPU sees it when its file is
// mapped.
type mapping struct {
	obj    *object
	linear uint64 // bus address
	access *softgpu.Access
	vmas   []*softgpu.VMA
	gone   bool
}

// mapMemory is RM_MAP_MEMORY without the file.
func (m *Manager) mapMemory(o *object, off, n uint64) (*mapping, nvrm.Status) {
	page, size := uint64(os.Getpagesize()), o.mem.access.Len()
	switch {
	case n == 0:
		return nil, nvrm.NV_ERR_INVALID_LIMIT
	case off%page != 0 || n%page != 0:
		return nil, nvrm.NV_ERR_INVALID_ARGUMENT
	case !o.card.gpu.Mappable():
		return nil, nvrm.NV_ERR_NOT_SUPPORTED
	case off >= size:
		return nil, nvrm.NV_ERR_INVALID_BASE
	case n > size-off:
		return nil, nvrm.NV_ERR_INVALID_LIMIT
	}
	access, err := o.mem.access.Part(off, n)
	if err != nil {
		return nil, nvrm.NV_ERR_GENERIC
	}
	linear, ok := o.card.place(access)
	if !ok {
		access.Release()
		return nil, nvrm.NV_ERR_NO_MEMORY
	}
	mp := &mapping{obj: o, linear: linear, access: access}
	o.mappings = append(o.mappings, mp)
	m.mappings++
	return mp, nvrm.NV_OK
}

// place returns a bus address for the memory.
func (c *card) place(access *softgpu.Access) (linear uint64, ok bool) {
	if c.static() {
		frames, off := access.Frames()
		return c.bar1 + staticStart + frames[0]*softgpu.FrameSize + off, true
	}
	return c.windows.TakeLowest(access.Len(), 1, access)
}

// unmap ends a mapping. Accesses to what the process has mapped of it fault.
func (m *Manager) unmap(mp *mapping) error {
	var errs []error
	for _, v := range mp.vmas {
		errs = append(errs, v.Revoke(-1))
	}
	mp.gone = true
	mp.vmas = nil
	mp.access.Release()
	o := mp.obj
	o.card.windows.Remove(mp.linear)
	o.mappings = slices.DeleteFunc(o.mappings, func(x *mapping) bool { return x == mp })
	m.mappings--
	return errors.Join(errs...)
}

// mappingAt finds a mapping by its bus address. In a static BAR1 several mappings of
// the same memory have the same; the client means one that it has unmapped, if any.
func (o *object) mappingAt(linear uint64) *mapping {
	var found *mapping
	for _, mp := range o.mappings {
		if mp.linear == linear && (found == nil || mp.idle() > found.idle()) {
			found = mp
		}
	}
	return found
}

// idle ranks mappings: unmapped, never mapped, mapped.
func (mp *mapping) idle() int {
	if len(mp.vmas) == 0 {
		return 1
	}
	for _, v := range mp.vmas {
		if v.Mapped() {
			return 0
		}
	}
	return 2
}
