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
	n      uint64
	access *softgpu.Access
	vmas   []*softgpu.VMA
	gone   bool
}

// mapMemory is RM_MAP_MEMORY without the file.
func (m *Manager) mapMemory(o *object, off, n uint64) (*mapping, nvrm.Status) {
	page := uint64(os.Getpagesize())
	switch {
	case n == 0:
		return nil, nvrm.NV_ERR_INVALID_LIMIT
	case off%page != 0 || n%page != 0:
		return nil, nvrm.NV_ERR_INVALID_ARGUMENT
	case o.card.gpu.Arena() == nil:
		return nil, nvrm.NV_ERR_NOT_SUPPORTED // frames on the heap cannot be mapped
	}
	access, status := acquireOf(o.mem, off, n)
	if status != nvrm.NV_OK {
		return nil, status
	}
	linear, status := o.card.place(access, n)
	if status != nvrm.NV_OK {
		access.Release()
		return nil, status
	}
	mp := &mapping{obj: o, linear: linear, n: n, access: access}
	o.mappings = append(o.mappings, mp)
	m.mappings++
	return mp, nvrm.NV_OK
}

// acquireOf distinguishes a range that begins outside the memory from one that ends
// there.
func acquireOf(mem memory, off, n uint64) (*softgpu.Access, nvrm.Status) {
	access, err := mem.acquire(off, n)
	if err == nil {
		return access, nvrm.NV_OK
	}
	first, err := mem.acquire(off, 1)
	if err != nil {
		return nil, nvrm.NV_ERR_INVALID_BASE
	}
	first.Release()
	return nil, nvrm.NV_ERR_INVALID_LIMIT
}

// place returns a bus address for the memory.
func (c *card) place(access *softgpu.Access, n uint64) (uint64, nvrm.Status) {
	if c.static() {
		frames, _, off := access.Frames()
		return c.bar1 + staticStart + frames[0]*softgpu.FrameSize + off, nvrm.NV_OK
	}
	at := uint64(0) // the first gap that is large enough
	i := slices.IndexFunc(c.windows, func(w busRange) bool {
		fits := w.at-at >= n
		if !fits {
			at = w.at + w.n
		}
		return fits
	})
	if i < 0 {
		i = len(c.windows)
	}
	if n > c.bar1Size-at {
		return 0, nvrm.NV_ERR_NO_MEMORY
	}
	c.windows = slices.Insert(c.windows, i, busRange{at, n})
	return c.bar1 + at, nvrm.NV_OK
}

// A busRange is a part of BAR1 that one mapping uses.
type busRange struct{ at, n uint64 }

func (c *card) release(linear uint64) {
	c.windows = slices.DeleteFunc(c.windows, func(w busRange) bool { return c.bar1+w.at == linear })
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
	o.card.release(mp.linear)
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
