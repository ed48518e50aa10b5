package pcie

import (
	"fmt"
	"math"
)

// Lend lends n bytes from a bus address.
func (fn *Function) Lend(bus uint64, n int, d Dir) (Loan, error) {
	one := [1]Range{{bus, n}}
	return fn.LendAll(one[:], d)
}

// LendAll lends the memory behind the ranges, in order, or nothing. Neighbours
// in the list are joined, so a list of pages costs little more than one range.
func (fn *Function) LendAll(sg []Range, d Dir) (Loan, error) {
	l := fn.shelf.get(fn, d)
	fn.f.loans.Add(1)
	if r, err := l.borrow(sg); err != nil {
		l.release()
		fn.faults.Add(1)
		return Loan{}, &Error{fn.name, d, r.Bus, r.Len, err}
	}
	seq := l.seq.Add(1)
	fn.f.cfg.Points.At("pcie.lent", seq)
	return Loan{l, seq, fn.f}, nil
}

// borrow collects the memory. On an error it says for which range.
func (l *loan) borrow(sg []Range) (Range, error) {
	if l.fn.removed.Load() {
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
		if r.Len <= 0 || uint64(r.Len) > math.MaxUint64-r.Bus || l.n > math.MaxInt-r.Len {
			return r, ErrMalformed
		}
		if err := l.walk(r.Bus, r.Len); err != nil {
			return r, err
		}
		l.n += r.Len
	}
	return Range{}, nil
}

func first(sg []Range) Range {
	if len(sg) == 0 {
		return Range{}
	}
	return sg[0]
}

// walk follows a request from the device to memory.
func (l *loan) walk(bus uint64, n int) error {
	f := l.fn.f
	if bus >= mmioBase && bus < iovaBase {
		// A switch on the way up looks at the address before any IOMMU does.
		if r := f.find(bus); r != nil && r.owner != nil {
			if meet, _ := route(l.fn, r.owner); meet {
				return l.take(r, bus, n, true)
			}
		}
	}
	if f.cfg.IOMMU != Translating {
		return l.reach(bus, n)
	}
	for n > 0 {
		m := l.fn.mapping(bus)
		if m == nil || !l.enter(&m.gate) {
			return ErrUnmapped
		}
		phys, k := m.run(bus, n)
		if err := l.reach(phys, k); err != nil {
			return err
		}
		bus += uint64(k)
		n -= k
	}
	return nil
}

// reach goes from the root to a physical address.
func (l *loan) reach(phys uint64, n int) error {
	r := l.fn.f.find(phys)
	switch {
	case r == nil:
		return ErrNoTarget
	case r.owner != nil && !forwards(l.fn, r.owner):
		return ErrNoRoute
	}
	return l.take(r, phys, n, false)
}

// take borrows from a region.
func (l *loan) take(r *region, phys uint64, n int, direct bool) error {
	off := phys - r.base
	switch {
	case uint64(n) > r.size-off:
		return ErrNoTarget
	case r.owner != nil && r.owner.removed.Load():
		return ErrRemoved
	case l.fn.f.poisoned(phys, n):
		return ErrAborted
	case !l.enter(&r.gate):
		return ErrNoTarget
	}
	segs, h, err := r.target.Lend(l.segs, off, n, l.dir)
	l.segs = segs
	if h != nil {
		l.holds = append(l.holds, h)
	}
	if err != nil {
		return fmt.Errorf("%w (%w)", ErrAborted, err)
	}
	l.parts = append(l.parts, part{r, n, direct})
	return nil
}
