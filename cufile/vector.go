package cufile

import (
	"context"
	"time"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/route"
)

// ReadvAt reads one range of the file, from off on, into several pieces of
// memory, one after the other. They may be of different kinds and on different
// GPUs. Fewer bytes without an error means that the file ended. With an error
// the receipt counts the bytes up to the first that is missing.
func (f *File) ReadvAt(ctx context.Context, mem []gpu.Span, off int64) (route.Receipt, error) {
	return f.vector(ctx, route.Read, mem, off)
}

// WritevAt is the mirror of ReadvAt.
func (f *File) WritevAt(ctx context.Context, mem []gpu.Span, off int64) (route.Receipt, error) {
	return f.vector(ctx, route.Write, mem, off)
}

// vector is a batch whose requests follow each other in the file.
func (f *File) vector(ctx context.Context, dir route.Dir, mem []gpu.Span, off int64) (route.Receipt, error) {
	b := batches.Get().(*batch)
	defer batches.Put(b)
	defer b.release()
	for _, m := range mem {
		if err := b.add(ctx, &Request{dir, f, m, off}); err != nil {
			return route.Receipt{Dir: dir}, err
		}
		off += int64(m.Len) // add has seen that it does not overflow
	}
	start := time.Now()
	b.res = append(b.res[:0], make([]route.Receipt, len(b.ops))...)
	err := b.run(ctx, b.res)
	sum := prefix(dir, b.ops, b.res)
	sum.Time = time.Since(start)
	return sum, err
}

// prefix sums the receipts up to the first that is short.
func prefix(dir route.Dir, ops []route.Op, res []route.Receipt) route.Receipt {
	sum := route.Receipt{Dir: dir}
	for i := range res {
		sum.Add(&res[i])
		if uint64(res[i].Bytes) < ops[i].Mem.Len {
			break
		}
	}
	sum.Dir = dir
	return sum
}
