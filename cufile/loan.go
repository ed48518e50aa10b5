package cufile

import (
	"time"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/stats"
	"github.com/culvert-io/culvert/route"
)

// A Loan is all that it takes to read small pieces of a file into a registered
// buffer without this package: for a front door in another language, where to
// come here costs as much as the read.
//
// Whoever has it does what the route bar would do, one pread of fewer than Below
// bytes into Mem and a fence of the CPU's stores, and counts it. A read that
// comes back short, or that ends when the loan has run out, counts for nothing:
// it is done again by ReadAt, which knows what to say.
type Loan struct {
	File *File
	Base gpu.Addr // of the buffer
	FD   int
	Mem  []byte
	// Below is the length from which a read is not for the borrower.
	Below uint64
	// Until is when the memory must be looked at again, on the clock of route.Now.
	Until time.Duration
	Count stats.Counters
}

// A Borrower is offered loans by transfers that could have done with one. A loan
// of the same file and buffer renews the one before it.
//
// It gives loans back when they are recalled: then nobody may begin to use them,
// and the call returns when nobody does.
type Borrower interface {
	Lend(Loan)
	RecallFile(*File)
	RecallBuffer(gpu.Addr)
}

// WithBorrower has the driver lend what b can use.
func WithBorrower(b Borrower) Option {
	return func(d *Driver) { d.borrower = b }
}

// lend offers a loan after a read of n bytes that has gone as those of a borrower
// go. The caller is inside the gates of file and buffer, so that neither can end
// before it is recalled. What bar has mapped is one allocation, so that the last
// look at the buffer was at all of it.
func (f *File) lend(p *route.Plan, at place, b *Buffer, r *route.Receipt, n uint64) {
	if f.drv.borrower == nil || b == nil || r.Route != route.Bar || uint64(r.Bytes) != n {
		return
	}
	mem, below := p.Straight(f.st, b.span.Base)
	if n >= below {
		return
	}
	count, ok := f.sums.open.Load().Counters(r.Dir == route.Write, int(route.Bar))
	if !ok {
		return
	}
	if !f.planMu.TryLock() {
		return // somebody else lends, or the route changes: the next read will do
	}
	defer f.planMu.Unlock()
	if f.plans[at].Load() != p {
		return // another route was required meanwhile
	}
	f.drv.borrower.Lend(Loan{
		File: f, Base: b.span.Base, FD: f.st.Buffered(), Mem: mem, Below: below,
		Until: time.Duration(b.looked.Load()) + lately, Count: count,
	})
}

// recallFile gets back what was lent of a file.
func (d *Driver) recallFile(f *File) {
	if d.borrower != nil {
		d.borrower.RecallFile(f)
	}
}

// recallBuffer gets back what was lent of a buffer.
func (d *Driver) recallBuffer(b *Buffer) {
	if d.borrower != nil {
		d.borrower.RecallBuffer(b.span.Base)
	}
}
