package cufile

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/gate"
	"github.com/culvert-io/culvert/route"
)

// A Buffer is memory that was registered once so that transfers need not look it
// up, map it or pin it again.
type Buffer struct {
	drv  *Driver
	span gpu.Span
	kind gpu.Kind
	live liveness

	looked atomic.Int64 // when the memory was last seen to be there, for LiveLately

	ladder *route.Ladder // that knows the buffer
	mu     sync.Mutex    // serialises Close
	io     gate.Gate     // transfers pass through: deregistration waits for them
}

// Span is the whole buffer.
func (b *Buffer) Span() gpu.Span { return b.span }

// Kind is the kind of memory it is made of.
func (b *Buffer) Kind() gpu.Kind { return b.kind }

// RegisterBuffer registers n bytes at base. Device memory must lie inside one
// allocation, or one range of virtual memory that is mapped without gaps; memory
// that the driver does not know is taken as host memory. Managed memory is
// refused, as cuFile does: use it unregistered.
//
// Memory that is freed while it is registered is noticed: transfers then fail
// with CUDAPointerInvalid, whatever has come to lie at its address. Reads by the
// route bar notice within a millisecond: until then they write to memory that they
// keep, or that still lies at the address they were given. Other memory at that
// address can be registered at once, which ends the registration of the first.
func (d *Driver) RegisterBuffer(base gpu.Addr, n uint64) (*Buffer, error) {
	fail := func(c Code, err error, fix string) error {
		return &Error{"register buffer", memName(base, n), c, err, fix}
	}
	if base == 0 || n == 0 {
		return nil, fail(InvalidValue, errors.New("a buffer has an address and a length"), "")
	}
	if err := d.use(); err != nil {
		return nil, fail(CodeOf(err), err, "")
	}
	p, err := d.extent(base, 0, n)
	if err != nil {
		return nil, fail(codeFor(err), err, "")
	}
	switch {
	case p.Kind == gpu.KindManaged:
		return nil, fail(CUDAMemoryTypeInvalid, errors.New("managed memory cannot be registered"), "read and write it unregistered")
	case p.Kind.OnDevice() && !p.Contains(base, n):
		return nil, fail(CUDAPointerRangeError, fmt.Errorf("the allocation is %d bytes at %v", p.Size, p.Base), "")
	}
	ladder, err := d.ladderOf(p.Device, p.Kind)
	if err != nil {
		return nil, fail(CodeOf(err), err, "")
	}
	b := &Buffer{drv: d, span: gpu.Span{Dev: p.Device, Base: base, Len: n}, kind: p.Kind, ladder: ladder}
	if b.live, err = d.identify(b.span, b.kind); err != nil {
		return nil, fail(codeFor(err), err, "")
	}
	b.mu.Lock() // nobody closes the buffer before the routes know it
	defer b.mu.Unlock()
	if !d.addBuffer(b) {
		return nil, fail(MemoryAlreadyRegistered, errors.New("this base is registered"), "deregister it first")
	}
	ladder.Register(b.span, b.kind)
	d.log.Debug("cufile: register buffer", "memory", b.span, "kind", b.kind)
	return b, nil
}

// addBuffer puts b into the table, in the place of one whose memory is gone: CUDA
// hands the address of freed memory out again at once.
func (d *Driver) addBuffer(b *Buffer) bool {
	for !d.buffers.add(b) {
		old := d.buffers.find(b.span.Base)
		if old == nil {
			continue // it has just ended
		}
		if old.Live(old.span) == nil {
			return false
		}
		_ = old.Close() // somebody else may have
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

// Close deregisters the buffer after the transfers that use it have ended.
func (b *Buffer) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.io.Close() {
		return &Error{Op: "deregister buffer", Object: b.span.String(), Code: MemoryNotRegistered}
	}
	b.drv.recallBuffer(b)
	b.ladder.Deregister(b.span)
	b.drv.buffers.remove(b) // last: now the base can be registered again
	return nil
}

func memName(base gpu.Addr, n uint64) string { return fmt.Sprintf("%v+%d", base, n) }
