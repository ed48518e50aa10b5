package cufile

import (
	"fmt"
	"time"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/route"
)

// An allocationCheck tells whether memory is still the allocation that was registered.
// An address alone cannot: CUDA reuses the address of freed memory at once.
type allocationCheck struct {
	dev   gpu.Device
	ids   identifier   // nil if the driver has no allocation IDs
	parts []allocation // in ascending order; none for memory that the driver does not know
}

// An identifier is a GPU driver that numbers allocations and uses no number twice. The
// look-up is the cheapest there is, about a quarter of a microsecond on hardware.
type identifier interface {
	BufferID(gpu.Addr) (uint64, error)
}

// An allocation is a part of a buffer. A range of virtual memory may have several.
type allocation struct {
	gpu.Pointer
	id uint64
}

// identify records the allocations of a span.
func (d *Driver) identify(s gpu.Span, k gpu.Kind) (allocationCheck, error) {
	l := allocationCheck{dev: d.deviceOf(s.Dev, k)}
	if k == gpu.KindNone || l.dev == nil {
		return l, nil
	}
	l.ids, _ = l.dev.(identifier)
	for at := s.Base; at < s.Base+gpu.Addr(s.Len); {
		p, err := l.look(at)
		if err != nil {
			return l, err
		}
		l.parts = append(l.parts, p)
		at = p.Base + gpu.Addr(p.Size)
	}
	return l, nil
}

// look finds the current allocation at an address.
func (l *allocationCheck) look(a gpu.Addr) (p allocation, err error) {
	if p.Pointer, err = l.dev.Pointer(a); err != nil {
		return p, err
	}
	if p.Kind == gpu.KindNone {
		return p, fmt.Errorf("no memory at %v: %w", a, route.ErrFreed)
	}
	if l.ids == nil {
		return p, nil
	}
	if p.id, err = l.ids.BufferID(a); err != nil || p.id == 0 {
		l.ids = nil // this memory has no ID: compare address and size
	}
	return p, nil
}

// CheckAllocated reports whether a span is still the memory that was registered. Every
// transfer calls it.
func (b *Buffer) CheckAllocated(s gpu.Span) error {
	end := s.Addr() + gpu.Addr(s.Len)
	for i := range b.alloc.parts {
		p := &b.alloc.parts[i]
		if p.Base >= end {
			break
		}
		if p.Base+gpu.Addr(p.Size) <= s.Addr() {
			continue
		}
		if !b.alloc.is(p) {
			return fmt.Errorf("%v: %w", b.span, route.ErrFreed)
		}
	}
	return nil
}

// checkInterval is how old a result may be where a stale one does no harm. The driver
// takes a quarter of a microsecond or more to answer, as long as a read of 1 KiB
// through BAR1.
var checkInterval = time.Millisecond

// CheckAllocatedCached is CheckAllocated, but may use a result up to checkInterval old.
func (b *Buffer) CheckAllocatedCached(s gpu.Span, now time.Duration) error {
	if last := time.Duration(b.checked.Load()); last != 0 && now-last < checkInterval {
		return nil
	}
	if err := b.CheckAllocated(s); err != nil {
		return err
	}
	b.checked.Store(int64(now))
	return nil
}

// is reports whether an allocation still exists.
func (l *allocationCheck) is(p *allocation) bool {
	if l.ids != nil {
		id, err := l.ids.BufferID(p.Base)
		return err == nil && id == p.id
	}
	now, err := l.dev.Pointer(p.Base)
	return err == nil && now.Kind == p.Kind && now.Base == p.Base && now.Size == p.Size
}

// deviceOf is an open GPU that can look up memory of a kind.
func (d *Driver) deviceOf(dev int, k gpu.Kind) gpu.Device {
	d.mu.Lock()
	defer d.mu.Unlock()
	if g, ok := d.gpus[dev]; ok && k.OnDevice() {
		return g.dev
	}
	return d.probe
}

// extent is what the driver knows of the memory at base, which must contain [base+off,
// base+off+n). Adjacent mappings of virtual memory count as one.
func (d *Driver) extent(base gpu.Addr, off, n uint64) (gpu.Pointer, error) {
	p, err := d.pointer(base)
	if err != nil || p.Kind != gpu.KindVirtual {
		return p, err
	}
	for !p.Contains(base+gpu.Addr(off), n) {
		next, err := d.pointer(p.Base + gpu.Addr(p.Size))
		if err != nil || next.Kind != p.Kind || next.Device != p.Device || next.Base != p.Base+gpu.Addr(p.Size) {
			break // the caller finds that the range does not fit
		}
		p.Size += next.Size
	}
	return p, nil
}
