package cufile

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/gate"
	"github.com/culvert-io/culvert/internal/hostmem"
	"github.com/culvert-io/culvert/internal/ladder"
)

// A Buffer is registered memory: transfers need not look it up, map it or pin it
// again.
type Buffer struct {
	drv  *Driver
	span gpu.Span
	// reserved is the length that was registered, if it is more than span: a
	// reservation of virtual memory of which only the beginning was mapped.
	reserved uint64

	kind  gpu.Kind
	alloc allocationCheck

	checked atomic.Int64 // when CheckAllocated last succeeded, for CheckAllocatedCached

	ladder *ladder.Ladder // that the buffer is registered with
	mu     sync.Mutex     // serialises Close
	io     gate.Gate      // transfers pass through: Close waits for them
}

// Span is the whole buffer, as far as there was memory.
func (b *Buffer) Span() gpu.Span { return b.span }

// Kind is the kind of memory it is made of.
func (b *Buffer) Kind() gpu.Kind { return b.kind }

// RegisterBuffer registers n bytes at base. Device memory must lie inside one
// allocation, or one reservation of virtual memory. What is not mapped there yet is used
// unregistered, once it is. Memory that the driver does not know counts as host memory,
// which must exist. Managed memory is refused, as by cuFile: use it unregistered.
//
// Memory that is freed while it is registered is detected: transfers then fail with
// CUDAPointerInvalid, even if the address was reused. Reads over the route bar detect
// it within 1 ms; until then they write to memory that they keep allocated, or that is
// now at the address they were given. New memory at that address can be registered at
// once, which ends the old registration.
func (d *Driver) RegisterBuffer(base gpu.Addr, n uint64) (*Buffer, error) {
	fail := func(c Code, err error, fix string) error {
		return &Error{"register buffer", memName(base, n), c, err, fix}
	}
	if base == 0 || n == 0 {
		return nil, fail(InvalidValue, errors.New("address and length must be non-zero"), "")
	}
	if err := d.use(); err != nil {
		return nil, fail(CodeOf(err), err, "")
	}
	if faults := d.faults(); faults != nil {
		if _, err := faults.Before("buffer", memName(base, n), n); err != nil {
			return nil, fail(codeFor(err), err, "")
		}
	}
	p, err := d.extent(base, 0, n)
	if err != nil {
		return nil, fail(codeFor(err), err, "")
	}
	switch {
	case p.Kind == gpu.KindManaged:
		return nil, fail(CUDAMemoryTypeInvalid, errors.New("managed memory cannot be registered"), "read and write it unregistered")
	case p.Kind == gpu.KindNone && !hostmem.Mapped(uint64(base), n):
		return nil, fail(InvalidValue, errors.New("no memory there, neither of a GPU nor of the host"), "")
	case p.Kind.OnDevice() && !p.Contains(base, n) && !d.reserves(p, base, n):
		return nil, fail(CUDAPointerRangeError, fmt.Errorf("range exceeds its allocation of %d bytes at %v", p.Size, p.Base), "")
	}
	l, err := d.ladderOf(p.Device, p.Kind)
	if err != nil {
		return nil, fail(CodeOf(err), err, "")
	}
	b := &Buffer{drv: d, span: gpu.Span{Dev: p.Device, Base: base, Len: n}, kind: p.Kind, ladder: l}
	if p.Kind.OnDevice() && !p.Contains(base, n) {
		b.span.Len, b.reserved = uint64(p.Base-base)+p.Size, n
	}
	if b.alloc, err = d.identify(b.span, b.kind); err != nil {
		return nil, fail(codeFor(err), err, "")
	}
	b.mu.Lock() // Close waits until the routes know the buffer
	defer b.mu.Unlock()
	if !d.addBuffer(b) {
		return nil, fail(MemoryAlreadyRegistered, errors.New("a buffer at this address is already registered"), "deregister it first")
	}
	l.Register(b.span, b.kind)
	d.log.Debug("cufile: register buffer", "memory", b.span, "kind", b.kind)
	return b, nil
}

// reserves reports whether [base, base+n) is reserved for virtual memory of which p is
// mapped.
func (d *Driver) reserves(p gpu.Pointer, base gpu.Addr, n uint64) bool {
	drv, ok := d.m.GPU.(interface {
		Reservation(gpu.Addr) (gpu.Addr, uint64)
	})
	if !ok || p.Kind != gpu.KindVirtual {
		return false
	}
	from, size := drv.Reservation(base)
	return size > 0 && n <= size-uint64(base-from)
}

// unmapped reports whether a span was reserved but not mapped when the buffer was
// registered.
func (b *Buffer) unmapped(s gpu.Span) bool {
	end := s.Off + s.Len
	return end >= s.Off && end > b.span.Len && end <= b.reserved
}

// addBuffer puts b into the table, in place of one whose memory was freed: CUDA reuses
// the address of freed memory at once.
func (d *Driver) addBuffer(b *Buffer) bool {
	for !d.buffers.add(b) {
		old := d.buffers.find(b.span.Base)
		if old == nil {
			continue // it was closed just now
		}
		if old.CheckAllocated(old.span) == nil {
			return false
		}
		_ = old.Close() // another caller may have closed it
	}
	return true
}

// Buffer finds the registered buffer with exactly this base.
func (d *Driver) Buffer(base gpu.Addr) (*Buffer, error) {
	if b := d.buffers.find(base); b != nil {
		return b, nil
	}
	return nil, &Error{Op: "find buffer", Object: base.String(), Code: MemoryNotRegistered}
}

// Close waits for transfers that use the buffer, then deregisters it.
func (b *Buffer) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.io.Close() {
		return &Error{Op: "deregister buffer", Object: b.span.String(), Code: MemoryNotRegistered}
	}
	b.drv.revokeBuffer(b)
	b.ladder.Deregister(b.span)
	b.drv.buffers.remove(b) // last: now the address can be registered again
	return nil
}

func memName(base gpu.Addr, n uint64) string { return fmt.Sprintf("%v+%d", base, n) }
