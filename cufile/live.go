package cufile

import (
	"fmt"
	"time"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/route"
)

// A liveness tells whether memory is still the allocation that was registered.
// An address alone cannot: CUDA hands a freed one out again at once.
type liveness struct {
	dev   gpu.Device
	ids   identifier // nil where the driver has no numbers
	parts []part     // in ascending order; none for memory that the driver does not know
}

// An identifier is a GPU's driver that numbers allocations and uses no number
// twice. The look-up is the cheapest that there is, about a quarter of a
// microsecond on hardware.
type identifier interface {
	BufferID(gpu.Addr) (uint64, error)
}

// A part is an allocation. A range of virtual memory may have several.
type part struct {
	alloc gpu.Pointer
	id    uint64
}

// identify notes the allocations behind a span.
func (d *Driver) identify(s gpu.Span, k gpu.Kind) (liveness, error) {
	l := liveness{dev: d.deviceOf(s.Dev, k)}
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
		at = p.alloc.Base + gpu.Addr(p.alloc.Size)
	}
	return l, nil
}

// look finds the allocation at an address now.
func (l *liveness) look(a gpu.Addr) (p part, err error) {
	if p.alloc, err = l.dev.Pointer(a); err != nil {
		return p, err
	}
	if p.alloc.Kind == gpu.KindNone {
		return p, fmt.Errorf("no memory at %v: %w", a, route.ErrFreed)
	}
	if l.ids == nil {
		return p, nil
	}
	if p.id, err = l.ids.BufferID(a); err != nil || p.id == 0 {
		l.ids = nil // this memory has no number: go by address and size
	}
	return p, nil
}

// Live reports whether the memory of a span is what it was. It is on the path of
// every transfer.
func (b *Buffer) Live(s gpu.Span) error {
	end := s.Addr() + gpu.Addr(s.Len)
	for i := range b.live.parts {
		p := &b.live.parts[i]
		if p.alloc.Base >= end {
			break
		}
		if p.alloc.Base+gpu.Addr(p.alloc.Size) <= s.Addr() {
			continue
		}
		if !b.live.is(p) {
			return fmt.Errorf("%v: %w", b.span, route.ErrFreed)
		}
	}
	return nil
}

// lately is how old an answer may be where a stale one does no harm. The driver
// takes a quarter of a microsecond and more to answer, as long as it takes to
// read 1 KiB through BAR1.
var lately = time.Millisecond

// LiveLately is Live, but relies on an answer that is not older than lately at
// the time now, which counts from any fixed moment.
func (b *Buffer) LiveLately(s gpu.Span, now time.Duration) error {
	if last := time.Duration(b.looked.Load()); last != 0 && now-last < lately {
		return nil
	}
	if err := b.Live(s); err != nil {
		return err
	}
	b.looked.Store(int64(now))
	return nil
}

// is reports whether an allocation is still there.
func (l *liveness) is(p *part) bool {
	if l.ids != nil {
		id, err := l.ids.BufferID(p.alloc.Base)
		return err == nil && id == p.id
	}
	now, err := l.dev.Pointer(p.alloc.Base)
	return err == nil && now.Kind == p.alloc.Kind && now.Base == p.alloc.Base && now.Size == p.alloc.Size
}

// registration is the buffer as a route knows it, or nil.
func (b *Buffer) registration() route.Registration {
	if b == nil {
		return nil
	}
	return b
}

// deviceOf is an open GPU that can look memory of a kind up.
func (d *Driver) deviceOf(dev int, k gpu.Kind) gpu.Device {
	d.mu.Lock()
	defer d.mu.Unlock()
	if g, ok := d.gpus[dev]; ok && k.OnDevice() {
		return g.dev
	}
	return d.probe
}

// extent is what the driver knows of the memory at base, which [base+off,
// base+off+n) should be part of. Pieces of virtual memory that are mapped one
// behind the other count as one.
func (d *Driver) extent(base gpu.Addr, off, n uint64) (gpu.Pointer, error) {
	p, err := d.pointer(base)
	if err != nil || p.Kind != gpu.KindVirtual {
		return p, err
	}
	for !p.Contains(base+gpu.Addr(off), n) {
		next, err := d.pointer(p.Base + gpu.Addr(p.Size))
		if err != nil || next.Kind != p.Kind || next.Device != p.Device || next.Base != p.Base+gpu.Addr(p.Size) {
			break // the caller finds that it does not fit
		}
		p.Size += next.Size
	}
	return p, nil
}
