package cufile

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/ladder"
	"github.com/culvert-io/culvert/internal/trace"
	"github.com/culvert-io/culvert/route"
)

// A Request is one transfer of a batch.
type Request struct {
	Dir  route.Dir
	File *File
	Mem  gpu.Span
	Off  int64
}

// ReadAt reads mem.Len bytes of the file at off into mem. Fewer bytes without an
// error mean that the file ended. The receipt is valid also with an error.
//
// The address says which GPU the memory is on; mem.Dev is not used. Memory need not be
// registered, and may be any part of a registered buffer (gpu.Span's Slice).
func (f *File) ReadAt(ctx context.Context, mem gpu.Span, off int64) (route.Receipt, error) {
	return f.one(ctx, route.Read, mem, off, false)
}

// WriteAt writes mem to the file at off. The bytes are on stable storage only after
// Sync.
func (f *File) WriteAt(ctx context.Context, mem gpu.Span, off int64) (route.Receipt, error) {
	return f.one(ctx, route.Write, mem, off, false)
}

// ReadvAt reads one range of the file, from off on, into several spans of memory, one
// after the other. They may be of different kinds and on different GPUs. Fewer bytes
// without an error mean that the file ended. With an error the receipt counts the
// bytes before the first that is missing.
func (f *File) ReadvAt(ctx context.Context, mem []gpu.Span, off int64) (route.Receipt, error) {
	return f.vector(ctx, route.Read, mem, off)
}

// WritevAt is the mirror of ReadvAt.
func (f *File) WritevAt(ctx context.Context, mem []gpu.Span, off int64) (route.Receipt, error) {
	return f.vector(ctx, route.Write, mem, off)
}

// Do runs a batch and fills res, one receipt per request. All requests are checked
// first: an invalid one is returned as the error, and nothing has been moved then.
// Small requests of a batch share copies, which costs much less than running them
// one by one.
func (d *Driver) Do(ctx context.Context, reqs []Request, res []route.Receipt) error {
	if len(res) < len(reqs) {
		return &Error{Op: "batch", Object: "of requests", Code: InvalidValue, Err: fmt.Errorf("%d requests but only %d receipts", len(reqs), len(res))}
	}
	return d.do(ctx, reqs, res, false)
}

// do is Do of requests that faults may have seen already.
func (d *Driver) do(ctx context.Context, reqs []Request, res []route.Receipt, seen bool) error {
	b := batches.Get().(*batch)
	defer b.release()
	for i := range reqs {
		q := &reqs[i]
		if q.File == nil {
			return &Error{Op: "batch", Object: "request", Code: InvalidValue, Err: errors.New("File is nil")}
		}
		if err := b.add(ctx, q.File, q.Dir, q.Mem, q.Off, seen); err != nil {
			return err
		}
	}
	clear(res[:len(reqs)])
	return b.run(ctx, res[:len(reqs)])
}

// one is a batch of one request.
func (f *File) one(ctx context.Context, dir route.Dir, mem gpu.Span, off int64, seen bool) (route.Receipt, error) {
	b := batches.Get().(*batch)
	defer b.release()
	if err := b.add(ctx, f, dir, mem, off, seen); err != nil {
		return route.Receipt{Dir: dir, Machine: f.drv.kind}, err
	}
	b.receipt[0] = route.Receipt{}
	err := b.runOne(ctx, b.receipt[:])
	return b.receipt[0], err
}

// vector is a batch of requests that follow each other in the file.
func (f *File) vector(ctx context.Context, dir route.Dir, mem []gpu.Span, off int64) (route.Receipt, error) {
	b := batches.Get().(*batch)
	defer b.release()
	for _, m := range mem {
		if err := b.add(ctx, f, dir, m, off, false); err != nil {
			return route.Receipt{Dir: dir, Machine: f.drv.kind}, err
		}
		off += int64(m.Len) // add has checked that it does not overflow
	}
	start := time.Now()
	res := make([]route.Receipt, len(mem))
	err := b.run(ctx, res)
	sum := b.prefix(dir, res)
	sum.Machine = f.drv.kind
	sum.Time = time.Since(start)
	return sum, err
}

// A batch is the state of the requests of one call. Batches are pooled, so that a
// transfer allocates nothing; and since pools are per processor, a batch's shard
// keeps threads off each other's cache lines.
type batch struct {
	ops   []ladder.Op
	uses  []inUse // at the same index
	shard uint32
	trace *trace.Buffer

	// Room for one request: a single read touches one object only.
	op      [1]ladder.Op
	used    [1]inUse
	receipt [1]route.Receipt
}

// inUse is what a request uses: the file and the buffer, which are not closed
// meanwhile, and the route plan.
type inUse struct {
	file *File
	buf  *Buffer
	plan *ladder.Plan // nil for a request of no bytes
}

var (
	batches   = sync.Pool{New: newBatch}
	nextShard atomic.Uint32
)

func newBatch() any {
	b := &batch{shard: nextShard.Add(1), trace: new(trace.Buffer)}
	b.ops, b.uses = b.op[:0], b.used[:0]
	return b
}

// inject asks the machine's faults about a request, which moves no more than limit bytes.
// Faults count calls, so each request asks once, however often it is tried.
func (f *File) inject(dir route.Dir, mem gpu.Span) (limit uint64, err error) {
	faults := f.drv.faults()
	if faults == nil {
		return mem.Len, nil
	}
	if limit, err = faults.Before(dir.String(), f.Name(), mem.Len); err != nil {
		err = f.fail(dir, mem, codeFor(err), err)
	}
	return limit, err
}

// add checks a request and keeps its file and buffer open until release. Faults that
// have not seen it may break it.
func (b *batch) add(ctx context.Context, f *File, dir route.Dir, mem gpu.Span, off int64, seen bool) (err error) {
	if !f.io.Enter(b.shard) {
		return f.fail(dir, mem, HandleNotRegistered, errDeregistered)
	}
	buf := f.drv.buffers.enter(&mem, b.shard)
	b.uses = append(b.uses, inUse{file: f, buf: buf})
	if err := f.check(ctx, dir, mem, off); err != nil {
		return err
	}
	if !seen {
		if mem.Len, err = f.inject(dir, mem); err != nil {
			return err
		}
	}
	b.ops = append(b.ops, ladder.Op{Dir: dir, Src: f.src, Off: off, Mem: mem})
	if mem.Len == 0 {
		return nil
	}
	op := &b.ops[len(b.ops)-1]
	if op.Kind, err = f.locate(dir, &op.Mem, buf); err != nil {
		return err
	}
	if buf != nil {
		op.Buf = buf
	}
	b.uses[len(b.uses)-1].plan, err = f.plan(locationOf(op.Mem.Dev, op.Kind))
	return err
}

// run gives neighbouring requests with the same plan to it in one call.
func (b *batch) run(ctx context.Context, res []route.Receipt) error {
	if len(b.ops) == 1 {
		return b.runOne(ctx, res)
	}
	for i := 0; i < len(b.ops); {
		plan, j := b.uses[i].plan, i+1
		if plan == nil {
			res[i].Dir, res[i].Machine = b.ops[i].Dir, b.uses[i].file.drv.kind
			i = j
			continue
		}
		for j < len(b.ops) && b.uses[j].plan == plan {
			j++
		}
		began := b.begin()
		err := plan.Run(ctx, b.ops[i:j], res[i:j])
		b.record(i, res[i:j], began, err)
		for k := i; k < j; k++ {
			f, took := b.uses[k].file, res[k].Time
			res[k].Machine = f.drv.kind
			if k > i { // they ran together, and each has the time of all
				took = 0
			}
			f.sums.add(f, b.shard, &res[k], b.ops[k].Mem, took, err)
			f.logFallback(ctx, plan, &res[k])
		}
		if err != nil {
			return b.fail(ctx, i, res[i:j], err)
		}
		i = j
	}
	return nil
}

// runOne is run for one request. A small read notices every call and every loop.
func (b *batch) runOne(ctx context.Context, res []route.Receipt) error {
	u, op, r := &b.uses[0], &b.ops[0], &res[0]
	f := u.file
	r.Dir, r.Machine = op.Dir, f.drv.kind
	if u.plan == nil {
		return nil
	}
	err := u.plan.Run(ctx, b.ops, res)
	recording := b.trace.On()
	if recording {
		rec := b.trace.One(&f.traced, r, err)
		if rec == nil {
			b.record(0, res, 0, err)
		} else {
			rec.Span(r, op.Ended, op.Turn).Place(&f.traced, op.Mem.Dev, op.Off).Publish(r)
		}
	}
	f.sums.add(f, b.shard, r, op.Mem, r.Time, err)
	f.logFallback(ctx, u.plan, r)
	switch {
	case err != nil:
		return b.fail(ctx, 0, res, err)
	case f.drv.leases != nil && !recording: // perhaps the next such read can be done in C
		b.offerLease(r)
	}
	return nil
}

// fail is the error of the first request from the i'th on that is not complete.
func (b *batch) fail(ctx context.Context, i int, res []route.Receipt, err error) error {
	if errors.Is(err, ctx.Err()) {
		return err
	}
	for k := range res {
		if uint64(res[k].Bytes) < b.ops[i+k].Mem.Len {
			i += k
			break
		}
	}
	op := &b.ops[i]
	return b.uses[i].file.fail(op.Dir, op.Mem, codeFor(err), err)
}

// prefix sums the receipts up to the first that is short.
func (b *batch) prefix(dir route.Dir, res []route.Receipt) route.Receipt {
	var sum route.Receipt
	for i := range res {
		sum.Add(&res[i])
		if uint64(res[i].Bytes) < b.ops[i].Mem.Len {
			break
		}
	}
	sum.Dir = dir
	return sum
}

func (b *batch) release() {
	for _, u := range b.uses {
		if u.buf != nil {
			u.buf.io.Leave(b.shard)
		}
		u.file.io.Leave(b.shard)
	}
	b.ops, b.uses = b.ops[:0], b.uses[:0]
	batches.Put(b)
}

// check tests the arguments against the rules that need no look-up.
func (f *File) check(ctx context.Context, dir route.Dir, mem gpu.Span, off int64) error {
	switch {
	case ctx == nil:
		return f.fail(dir, mem, InvalidValue, errors.New("context is nil"))
	case dir > route.Write:
		return f.fail(dir, mem, InvalidValue, fmt.Errorf("invalid direction %d", dir))
	case off < 0:
		return f.fail(dir, mem, InvalidValue, fmt.Errorf("file offset %d is negative", off))
	case mem.Len > math.MaxInt64-uint64(off):
		return f.fail(dir, mem, InvalidValue, fmt.Errorf("offset %d plus length %d overflows", off, mem.Len))
	case mem.Base == 0:
		return f.fail(dir, mem, InvalidValue, errors.New("memory address is 0"))
	case dir == route.Read && f.st != nil && !f.st.Readable():
		return f.fail(dir, mem, InvalidFileOpenFlag, errors.New("the file was opened write-only"))
	case dir == route.Write && f.st != nil && !f.st.Writable():
		return f.fail(dir, mem, InvalidFileOpenFlag, errors.New("the file was opened read-only"))
	}
	return nil
}

// locate finds the kind of mem, from its registration or by asking the driver, and
// sets its GPU.
func (f *File) locate(dir route.Dir, mem *gpu.Span, b *Buffer) (gpu.Kind, error) {
	if b != nil {
		mem.Dev = b.span.Dev
		if mem.Off > b.span.Len || mem.Len > b.span.Len-mem.Off {
			return gpu.KindNone, f.fail(dir, *mem, InvalidMappingRange, fmt.Errorf("range exceeds the registered buffer of %d bytes", b.span.Len))
		}
		return b.kind, nil
	}
	if mem.Off > math.MaxUint64-uint64(mem.Base) {
		return gpu.KindNone, f.fail(dir, *mem, CUDAPointerRangeError, errors.New("the address overflows"))
	}
	p, err := f.drv.extent(mem.Base, mem.Off, mem.Len)
	if err != nil {
		return gpu.KindNone, f.fail(dir, *mem, codeFor(err), err)
	}
	if p.Kind != gpu.KindNone && !p.Contains(mem.Addr(), mem.Len) {
		return gpu.KindNone, f.fail(dir, *mem, CUDAPointerRangeError, fmt.Errorf("range exceeds its allocation of %d bytes at %v", p.Size, p.Base))
	}
	mem.Dev = p.Device
	return p.Kind, nil
}

// fail is the error of a transfer.
func (f *File) fail(dir route.Dir, mem gpu.Span, c Code, err error) error {
	if op, ok := err.(*ladder.OpError); ok {
		err = op.Err // the file is named here
	}
	return &Error{Op: dir.String(), Object: f.Name() + " <-> " + mem.String(), Code: c, Err: err}
}
