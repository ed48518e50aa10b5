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
	a := fn.unused.Get()
	a.fn, a.dir, a.n = fn, d, 0
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
		if w := f.find(bus); w != nil && w.owner != nil {
			if top, meet, _ := route(a.fn, w.owner); meet {
				return a.take(w, bus, n, top)
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
	w := a.fn.f.find(phys)
	switch {
	case w == nil:
		return ErrNoTarget
	case w.owner != nil && !forwards(a.fn, w.owner):
		return ErrNoRoute
	}
	return a.take(w, phys, n, nil)
}

// take adds memory of a window. Requests turn round at the switch top, or at the root.
func (a *access) take(w *Window, phys uint64, n int, top *Switch) error {
	off := phys - w.base // huge if the memory begins later in its first page
	switch {
	case off >= w.size || uint64(n) > w.size-off:
		return ErrNoTarget
	case w.owner != nil && w.owner.removed.Load():
		return ErrRemoved
	case a.fn.f.poisoned(phys, n):
		return ErrAborted
	case !a.enter(&w.gate):
		return ErrNoTarget
	}
	segs, h, err := w.target.Acquire(a.segs, off, n, a.dir)
	a.segs = segs
	if h != nil {
		a.held = append(a.held, h)
	}
	if err != nil {
		return fmt.Errorf("%w (%w)", ErrAborted, err)
	}
	a.parts = append(a.parts, part{w, n, top})
	return nil
}
