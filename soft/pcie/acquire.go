package pcie

import (
	"fmt"
	"math"
)

// Acquire gives the device n bytes from a bus address.
func (fn *Function) Acquire(bus uint64, n int, d Dir) (Access, error) {
	one := [1]Range{{bus, n}}
	return fn.AcquireAll(one[:], d)
}

// AcquireAll gives the device the memory behind the ranges, in order, or fails. It
// joins adjacent ranges, so that a list of pages costs little more than one range.
func (fn *Function) AcquireAll(sg []Range, d Dir) (Access, error) {
	a := fn.unused.get(fn, d)
	fn.f.accesses.Add(1)
	if r, err := a.collect(sg); err != nil {
		a.release()
		fn.faults.Add(1)
		return Access{}, &Error{fn.name, d, r.Bus, r.Len, err}
	}
	seq := a.seq.Add(1)
	fn.f.cfg.Points.At("pcie.acquired", seq)
	return Access{a, seq}, nil
}

// collect adds the memory of all ranges. With an error it returns the range.
func (a *access) collect(sg []Range) (Range, error) {
	if a.fn.removed.Load() {
		return first(sg), ErrRemoved
	}
	if len(sg) == 0 {
		return Range{}, ErrMalformed
	}
	for i := 0; i < len(sg); {
		r := sg[i]
		for i++; i < len(sg) && r.Len > 0 && sg[i].Len > 0 && sg[i].Bus == r.Bus+uint64(r.Len); i++ {
			r.Len += sg[i].Len
		}
		if r.Len <= 0 || uint64(r.Len) > math.MaxUint64-r.Bus || a.n > math.MaxInt-r.Len {
			return r, ErrMalformed
		}
		if err := a.walk(r.Bus, r.Len); err != nil {
			return r, err
		}
		a.n += r.Len
	}
	return Range{}, nil
}

func first(sg []Range) Range {
	if len(sg) == 0 {
		return Range{}
	}
	return sg[0]
}

// walk routes a request from the device to memory.
func (a *access) walk(bus uint64, n int) error {
	f := a.fn.f
	if bus >= mmioBase && bus < iovaBase {
		// A switch sees the address before the IOMMU does.
		if r := f.find(bus); r != nil && r.owner != nil {
			if meet, _ := route(a.fn, r.owner); meet {
				return a.take(r, bus, n, true)
			}
		}
	}
	if f.cfg.IOMMU != Translating {
		return a.reach(bus, n)
	}
	for n > 0 {
		m := a.fn.mapping(bus)
		if m == nil || !a.enter(&m.gate) {
			return ErrUnmapped
		}
		phys, k := m.run(bus, n)
		if err := a.reach(phys, k); err != nil {
			return err
		}
		bus += uint64(k)
		n -= k
	}
	return nil
}

// reach routes a request from the root to a physical address.
func (a *access) reach(phys uint64, n int) error {
	r := a.fn.f.find(phys)
	switch {
	case r == nil:
		return ErrNoTarget
	case r.owner != nil && !forwards(a.fn, r.owner):
		return ErrNoRoute
	}
	return a.take(r, phys, n, false)
}

// take adds memory of a region.
func (a *access) take(r *region, phys uint64, n int, direct bool) error {
	off := phys - r.base
	switch {
	case uint64(n) > r.size-off:
		return ErrNoTarget
	case r.owner != nil && r.owner.removed.Load():
		return ErrRemoved
	case a.fn.f.poisoned(phys, n):
		return ErrAborted
	case !a.enter(&r.gate):
		return ErrNoTarget
	}
	segs, h, err := r.target.Acquire(a.segs, off, n, a.dir)
	a.segs = segs
	if h != nil {
		a.held = append(a.held, h)
	}
	if err != nil {
		return fmt.Errorf("%w (%w)", ErrAborted, err)
	}
	a.parts = append(a.parts, part{r, n, direct})
	return nil
}
