package route

import (
	"context"

	"golang.org/x/sys/unix"
)

// directStep is how much goes to the kernel at a time: it keeps a drive's queue
// full, and a cancelled transfer ends soon.
const directStep = 16 << 20

// A cut divides the file's range of a request: [from, to) is aligned for direct
// I/O, what is before and behind it is ragged.
type cut struct{ from, to, end int64 }

// cutDirect cuts an op that ends at end, which is never behind what it asks for.
func cutDirect(op *Op, end int64) cut {
	a := int64(max(op.File.Facts.Direct.OffAlign, 1))
	return cut{(op.Off + a - 1) / a * a, end / a * a, end}
}

func (c cut) empty() bool { return c.to <= c.from }

// run moves the head, the middle and the tail of an op.
func (p *P2PDMARoute) run(ctx context.Context, op *Op, r *Receipt) error {
	w := (*p.wins.Load())[op.Mem.Base]
	if w == nil {
		return unix.EFAULT
	}
	// The buffer stays registered while a transfer uses it, so the window needs no
	// lock of its own here.
	mem := w.bytes[op.Mem.Off : op.Mem.Off+op.Mem.Len]
	end := op.Off + int64(op.Mem.Len)
	if op.Dir == Read {
		// Direct I/O would also write what lies behind the end of the file.
		size, err := op.File.Size()
		if err != nil {
			return err
		}
		end = min(end, size)
	}
	r.Host.Evidence = Inferred
	c := cutDirect(op, end)
	if c.empty() {
		c.from, c.to = end, end
	}
	done, err := p.ragged(op, r, mem, op.Off, min(c.from, end))
	r.Head = done
	if err != nil || op.Off+r.Bytes < c.from {
		return err
	}
	if err := p.direct(ctx, op, r, mem, c); err != nil || op.Off+r.Bytes < c.to {
		return err
	}
	r.Tail, err = p.ragged(op, r, mem, c.to, end)
	return err
}

// ragged moves [from, to) of the file through the page cache, by the CPU, which
// reaches the mapping as it reaches a BAR.
func (p *P2PDMARoute) ragged(op *Op, r *Receipt, mem []byte, from, to int64) (int64, error) {
	if from >= to {
		return 0, nil
	}
	part := mem[from-op.Off : to-op.Off]
	n, err := moveAll(syscallFor(op.Dir), op.File.Buffered(), part, from, 1, &r.Retries)
	r.Bytes += n
	r.By[Bar] += n
	r.Host.Bytes += n
	return n, err
}

// direct has the drive move the aligned middle.
func (p *P2PDMARoute) direct(ctx context.Context, op *Op, r *Receipt, mem []byte, c cut) error {
	for at := c.from; at < c.to; {
		if err := ctx.Err(); err != nil {
			return err
		}
		k := min(directStep, c.to-at)
		n, err := moveAll(syscallFor(op.Dir), op.File.Direct(), mem[at-op.Off:at-op.Off+k], at, directUnit(op.File), &r.Retries)
		r.Bytes += n
		r.By[P2PDMA] += n
		at += n
		if err != nil {
			return err
		}
		if n < k {
			return nil // the file has shrunk, or the drive was pulled out
		}
	}
	return nil
}
