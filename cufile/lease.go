package cufile

import (
	"time"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/ladder"
	"github.com/culvert-io/culvert/route"
)

// A Lease lets other code (the C library) read a file into a registered buffer, where
// a call of this package would cost as much as the read: one pread of fewer than
// Below bytes into Mem, a store fence, an update of the counters. A read that is short
// or ends after Until must be repeated with ReadAt, and is not counted.
type Lease struct {
	File *File
	Base gpu.Addr // of the buffer
	FD   int
	Mem  []byte
	// Below is the length from which a read needs ReadAt.
	Below uint64
	// Until is when the memory must be checked again, on the clock of [Since].
	Until time.Duration
	// Ops, Bytes and Nanos are the addresses of counters in shared memory, of which
	// there are several, Stride bytes apart: each thread updates one of its own.
	Ops, Bytes, Nanos, Stride uintptr
}

// A LeaseHolder is offered leases by transfers that could have used one. A lease of
// the same file and buffer renews the one before it.
//
// When the holder revokes leases, no new use may begin, and the call returns when no
// use is left.
type LeaseHolder interface {
	Grant(Lease)
	RevokeFile(*File)
	RevokeBuffer(gpu.Addr)
}

// Since is the time since the process started, the clock of Lease.Until.
func Since() time.Duration { return ladder.Now() }

// WithLeases grants leases to h.
func WithLeases(h LeaseHolder) Option {
	return func(d *Driver) { d.leases = h }
}

// offerLease offers a lease after a read that a lease would have covered. The batch
// is inside the gates of file and buffer, so neither can end before it is revoked.
// What bar has mapped is one allocation, so the last check of the buffer covered all
// of it.
func (b *batch) offerLease(r *route.Receipt) {
	u, op := &b.uses[0], &b.ops[0]
	f := u.file
	if u.buf == nil || r.Route != route.Bar || uint64(r.Bytes) != op.Mem.Len {
		return
	}
	mem, below := u.plan.SinglePread(op)
	if op.Mem.Len >= below {
		return
	}
	count, ok := f.sums.open.Load().Counters(r.Dir == route.Write, int(route.Bar))
	if !ok {
		return
	}
	if !f.planMu.TryLock() {
		return // another call grants, or the route changes: the next read will do
	}
	defer f.planMu.Unlock()
	if f.plans[locationOf(op.Mem.Dev, op.Kind)].Load() != u.plan {
		return // another route was required meanwhile
	}
	f.drv.leases.Grant(Lease{
		File: f, Base: u.buf.span.Base, FD: f.st.Buffered(), Mem: mem, Below: below,
		Until: time.Duration(u.buf.checked.Load()) + checkInterval,
		Ops:   count.Ops, Bytes: count.Bytes, Nanos: count.Nanos, Stride: count.Stride,
	})
}

// revokeFile revokes the leases of a file.
func (d *Driver) revokeFile(f *File) {
	if d.leases != nil {
		d.leases.RevokeFile(f)
	}
}

// revokeBuffer revokes the leases of a buffer.
func (d *Driver) revokeBuffer(b *Buffer) {
	if d.leases != nil {
		d.leases.RevokeBuffer(b.span.Base)
	}
}
