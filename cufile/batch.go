package cufile

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/route"
)

// A Request is one transfer of a batch.
type Request struct {
	Dir  route.Dir
	File *File
	Mem  gpu.Span
	Off  int64
}

// batches keeps the room that a batch needs while it runs.
var batches = sync.Pool{New: func() any { return new(batch) }}

// A batch holds each of its files and buffers once: taking a read lock twice
// would deadlock with a Close that waits between the two.
type batch struct {
	ops   []route.Op
	plans []*route.Plan
	files []*File
	bufs  []*Buffer
}

// Do runs a batch and fills res, one receipt per request. Requests are checked
// one by one: the first that is wrong is returned as the error, and nothing has
// been moved then. Small requests of a batch travel together, which is much
// cheaper than one by one.
func (d *Driver) Do(ctx context.Context, reqs []Request, res []route.Receipt) error {
	if len(res) < len(reqs) {
		return &Error{Op: "batch", Object: "of requests", Code: InvalidValue, Err: errors.New("fewer receipts than requests")}
	}
	b := batches.Get().(*batch)
	defer batches.Put(b)
	defer b.release()
	for i := range reqs {
		if err := b.add(&reqs[i]); err != nil {
			return err
		}
	}
	return b.run(ctx, reqs, res[:len(reqs)])
}

// add checks a request and holds its file and buffer until release.
func (b *batch) add(q *Request) error {
	if q.File == nil {
		return &Error{Op: "batch", Object: "request", Code: InvalidValue, Err: errors.New("it has no file")}
	}
	f, mem := q.File, q.Mem
	buf := b.hold(f, mem.Base)
	if err := f.check(q.Dir, mem, q.Off); err != nil {
		return err
	}
	kind, err := f.locate(q.Dir, &mem, buf)
	if err != nil {
		return err
	}
	p, err := f.plan(placeOf(mem.Dev, kind))
	if err != nil {
		return err
	}
	b.plans = append(b.plans, p)
	b.ops = append(b.ops, route.Op{Dir: q.Dir, File: f.st, Off: q.Off, Mem: mem, Kind: kind})
	return nil
}

// run gives neighbouring requests with the same plan to it in one call.
func (b *batch) run(ctx context.Context, reqs []Request, res []route.Receipt) error {
	clear(res)
	for i := 0; i < len(b.ops); {
		j := i + 1
		for j < len(b.ops) && b.plans[j] == b.plans[i] {
			j++
		}
		err := b.plans[i].Run(ctx, b.ops[i:j], res[i:j])
		for k := i; k < j; k++ {
			reqs[k].File.stats.add(&res[k], err)
		}
		if err != nil {
			return &Error{Op: "batch", Object: reqs[i].File.Name(), Code: codeFor(err), Err: err}
		}
		i = j
	}
	return nil
}

func (b *batch) hold(f *File, base gpu.Addr) *Buffer {
	if !slices.Contains(b.files, f) {
		f.io.RLock()
		b.files = append(b.files, f)
	}
	for _, buf := range b.bufs {
		if buf.span.Base == base {
			return buf
		}
	}
	buf := f.hold(base)
	if buf != nil {
		b.bufs = append(b.bufs, buf)
	}
	return buf
}

func (b *batch) release() {
	for _, buf := range b.bufs {
		buf.io.RUnlock()
	}
	for _, f := range b.files {
		f.io.RUnlock()
	}
	clear(b.ops)
	clear(b.plans)
	clear(b.files)
	clear(b.bufs)
	b.ops, b.plans, b.files, b.bufs = b.ops[:0], b.plans[:0], b.files[:0], b.bufs[:0]
}
