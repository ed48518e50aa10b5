package nvrm

import (
	"errors"
	"os"
	"slices"

	"github.com/culvert-io/culvert/internal/abi/nvrm"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
)

// A mapping is a part of memory that has a place in BAR1. It becomes visible
// to the CPU when the node that it is attached to is mapped.
type mapping struct {
	obj    *object
	linear uint64 // bus address
	n      uint64
	access *softgpu.Access
	vmas   []*vma
	gone   bool
}

// mapMemory is RM_MAP_MEMORY but for the node.
func (m *Manager) mapMemory(o *object, off, n uint64) (*mapping, nvrm.Status) {
	page := uint64(os.Getpagesize())
	switch {
	case n == 0:
		return nil, nvrm.NV_ERR_INVALID_LIMIT
	case off%page != 0 || n%page != 0:
		return nil, nvrm.NV_ERR_INVALID_ARGUMENT
	case o.card.gpu.Arena() == nil:
		return nil, nvrm.NV_ERR_NOT_SUPPORTED // frames on the heap cannot be mapped a second time
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

// acquireOf tells a range that begins outside the memory from one that ends there.
func acquireOf(mem memory, off, n uint64) (*softgpu.Access, nvrm.Status) {
	access, err := mem.lend(off, n)
	if err == nil {
		return access, nvrm.NV_OK
	}
	first, err := mem.lend(off, 1)
	if err != nil {
		return nil, nvrm.NV_ERR_INVALID_BASE
	}
	first.Release()
	return nil, nvrm.NV_ERR_INVALID_LIMIT
}

// place finds the bus address of what was lent.
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

// busRange is a part of BAR1 that a mapping has for itself.
type busRange struct{ at, n uint64 }

func (c *card) release(linear uint64) {
	c.windows = slices.DeleteFunc(c.windows, func(w busRange) bool { return c.bar1+w.at == linear })
}

// unmap ends a mapping. What of it is mapped becomes inaccessible.
func (m *Manager) unmap(mp *mapping) error {
	var errs []error
	for _, v := range mp.vmas {
		errs = append(errs, v.revoke())
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

// mappingAt finds a mapping by the name that a client has for it. In a static
// BAR1 several mappings of the same memory share one; the client then means the
// one that it has unmapped, and it does not matter which while it has not.
func (o *object) mappingAt(linear uint64) *mapping {
	var found *mapping
	for _, mp := range o.mappings {
		if mp.linear == linear && (found == nil || mp.idle() > found.idle()) {
			found = mp
		}
	}
	return found
}

// idle ranks mappings by how little they are in use.
func (mp *mapping) idle() int {
	if len(mp.vmas) == 0 {
		return 1
	}
	for _, v := range mp.vmas {
		if v.live() {
			return 0
		}
	}
	return 2
}
