package ladder

import (
	"context"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/route"
)

// directStep is how much goes to the kernel at a time: enough to keep a drive's queue
// full, and little enough that a cancelled transfer ends soon.
const directStep = 16 << 20

// A cut divides the file range of a request: [from, to) is aligned for direct I/O,
// what precedes and follows it is not.
type cut struct{ from, to, end int64 }

// cutDirect cuts an op that ends at end.
func cutDirect(op *Op, end int64) cut {
	a := int64(max(op.file().Facts.Direct.OffAlign, 1))
	return cut{(op.Off + a - 1) / a * a, end / a * a, end}
}

func (c cut) empty() bool { return c.to <= c.from }

// run moves the head, the middle and the tail of an op.
func (p *p2pdmaRoute) run(ctx context.Context, op *Op, r *route.Receipt) error {
	// The buffer stays registered while a transfer uses it, so the mapping needs no
	// lock of its own here.
	m, ok := p.maps.get(op.Mem.Base)
	if !ok {
		return unix.EFAULT
	}
	mem := m.bytes[op.Mem.Off : op.Mem.Off+op.Mem.Len]
	end := op.end()
	if op.Dir == route.Read {
		// Direct I/O would also write what follows the end of the file.
		size, err := op.fileSize()
		if err != nil {
			return err
		}
		end = min(end, size)
	}
	r.Host.Evidence = route.Inferred
	c := cutDirect(op, end)
	if c.empty() {
		c.from, c.to = end, end
	}
	done, err := p.throughCache(op, r, mem, op.Off, min(c.from, end))
	r.Head = done
	if err != nil || op.Off+r.Bytes < c.from {
		return err
	}
	if err := p.direct(ctx, op, r, mem, c); err != nil || op.Off+r.Bytes < c.to {
		return err
	}
	r.Tail, err = p.throughCache(op, r, mem, c.to, end)
	return err
}

// throughCache moves [from, to) of the file through the page cache, by the CPU, which
// accesses the mapping as it accesses a BAR.
func (p *p2pdmaRoute) throughCache(op *Op, r *route.Receipt, mem []byte, from, to int64) (int64, error) {
	if from >= to {
		return 0, nil
	}
	part := mem[from-op.Off : to-op.Off]
	n, err := moveAll(syscallFor(op.Dir), op.file().Buffered(), part, from, 1, &r.Retries)
	r.Bytes += n
	r.By[route.Bar] += n
	r.Host.Bytes += n
	return n, err
}

// direct has the drive move the aligned middle.
func (p *p2pdmaRoute) direct(ctx context.Context, op *Op, r *route.Receipt, mem []byte, c cut) error {
	for at := c.from; at < c.to; {
		if err := ctx.Err(); err != nil {
			return err
		}
		k := min(directStep, c.to-at)
		n, err := moveAll(syscallFor(op.Dir), op.file().Direct(), mem[at-op.Off:at-op.Off+k], at, directUnit(op.file()), &r.Retries)
		r.Bytes += n
		r.By[route.P2PDMA] += n
		at += n
		if err != nil {
			return err
		}
		if n < k {
			return nil // the file was truncated, or the drive removed
		}
	}
	return nil
}
