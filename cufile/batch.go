package cufile

import (
	"context"
	"errors"
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
var batches = sync.Pool{New: func() any { return &batch{shard: nextShard.Add(1)} }}

type batch struct {
	ops   []route.Op
	plans []*route.Plan
	held  []held
	res   []route.Receipt // of a vector
	shard uint32
}

// held is what a request keeps from being closed.
type held struct {
	file *File
	buf  *Buffer
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
		if err := b.add(ctx, &reqs[i]); err != nil {
			return err
		}
	}
	clear(res[:len(reqs)])
	return b.run(ctx, res[:len(reqs)])
}

// add checks a request and holds its file and buffer until release.
func (b *batch) add(ctx context.Context, q *Request) error {
	f, mem := q.File, q.Mem
	if f == nil {
		return &Error{Op: "batch", Object: "request", Code: InvalidValue, Err: errors.New("it has no file")}
	}
	if !f.io.Enter(b.shard) {
		return f.fail(q.Dir, mem, HandleNotRegistered, errDeregistered)
	}
	h := held{f, f.hold(mem.Base, b.shard)}
	b.held = append(b.held, h)
	if err := f.check(ctx, q.Dir, mem, q.Off); err != nil {
		return err
	}
	kind, err := f.locate(q.Dir, &mem, h.buf)
	if err != nil {
		return err
	}
	p, err := f.plan(placeOf(mem.Dev, kind))
	if err != nil {
		return err
	}
	b.plans = append(b.plans, p)
	b.ops = append(b.ops, route.Op{Dir: q.Dir, File: f.st, Off: q.Off, Mem: mem, Kind: kind, Buf: h.buf.registration()})
	return nil
}

// run gives neighbouring requests with the same plan to it in one call.
func (b *batch) run(ctx context.Context, res []route.Receipt) error {
	for i := 0; i < len(b.ops); {
		j := i + 1
		for j < len(b.ops) && b.plans[j] == b.plans[i] {
			j++
		}
		err := b.plans[i].Run(ctx, b.ops[i:j], res[i:j])
		for k := i; k < j; k++ {
			f, took := b.held[k].file, res[k].Time
			if k > i { // they ran side by side, and each says how long all took
				took = 0
			}
			f.sums.add(f, b.shard, &res[k], b.ops[k].Mem.Len, took, err)
			f.logFallback(ctx, b.plans[k], &res[k])
		}
		if err != nil {
			return b.fail(ctx, i, err)
		}
		i = j
	}
	return nil
}

// fail is the error of requests from the i'th on.
func (b *batch) fail(ctx context.Context, i int, err error) error {
	if errors.Is(err, ctx.Err()) {
		return err
	}
	e := &Error{Op: "batch", Object: b.held[i].file.Name(), Code: codeFor(err), Err: err}
	if op, ok := err.(*route.OpError); ok {
		e.Object, e.Err = op.File, op.Err
	}
	return e
}

func (b *batch) release() {
	for _, h := range b.held {
		if h.buf != nil {
			h.buf.io.Leave(b.shard)
		}
		h.file.io.Leave(b.shard)
	}
	clear(b.ops)
	clear(b.plans)
	clear(b.held)
	clear(b.res)
	b.ops, b.plans, b.held, b.res = b.ops[:0], b.plans[:0], b.held[:0], b.res[:0]
}
