package cufile

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/route"
)

// A call is one transfer on its way. Calls are pooled, so that a transfer
// allocates nothing; and since pools are per processor, a call's shard keeps
// threads out of each other's cache lines.
type call struct {
	ops   [1]route.Op
	res   [1]route.Receipt
	shard uint32
}

var (
	calls     = sync.Pool{New: func() any { return &call{shard: nextShard.Add(1)} }}
	nextShard atomic.Uint32
)

func (f *File) do(ctx context.Context, dir route.Dir, mem gpu.Span, off int64) (route.Receipt, error) {
	c := calls.Get().(*call)
	defer calls.Put(c)
	c.res[0] = route.Receipt{Dir: dir}
	if !f.io.Enter(c.shard) {
		return c.res[0], f.fail(dir, mem, HandleNotRegistered, errDeregistered)
	}
	defer f.io.Leave(c.shard)
	if err := f.check(ctx, dir, mem, off); err != nil || mem.Len == 0 {
		return c.res[0], err
	}
	b := f.hold(mem.Base, c.shard)
	if b != nil {
		defer b.io.Leave(c.shard)
	}
	err := f.run(ctx, c, route.Op{Dir: dir, File: f.st, Off: off, Mem: mem, Buf: b.registration()}, b)
	return c.res[0], err
}

// run finds where the memory is and the plan for it, and moves the bytes.
func (f *File) run(ctx context.Context, c *call, op route.Op, b *Buffer) (err error) {
	if op.Kind, err = f.locate(op.Dir, &op.Mem, b); err != nil {
		return err
	}
	at := placeOf(op.Mem.Dev, op.Kind)
	p, err := f.plan(at)
	if err != nil {
		return err
	}
	c.ops[0] = op
	err = p.Run(ctx, c.ops[:], c.res[:])
	c.ops[0] = route.Op{}
	f.sums.add(f, c.shard, &c.res[0], op.Mem.Len, c.res[0].Time, err)
	f.logFallback(ctx, p, &c.res[0])
	if err == nil {
		f.lend(p, at, b, &c.res[0], op.Mem.Len)
	}
	if err != nil && !errors.Is(err, ctx.Err()) {
		err = f.fail(op.Dir, op.Mem, codeFor(err), err)
	}
	return err
}

// hold finds the registered buffer with this base and keeps it registered until
// its gate is left; nil where there is none.
func (f *File) hold(base gpu.Addr, shard uint32) *Buffer {
	b := f.drv.buffers.find(base)
	if b == nil || !b.io.Enter(shard) {
		return nil
	}
	return b
}

// check holds the arguments against the rules that need no look-up.
func (f *File) check(ctx context.Context, dir route.Dir, mem gpu.Span, off int64) error {
	switch {
	case ctx == nil:
		return f.fail(dir, mem, InvalidValue, errors.New("there is no context"))
	case dir > route.Write:
		return f.fail(dir, mem, InvalidValue, errors.New("there is no such direction"))
	case off < 0:
		return f.fail(dir, mem, InvalidValue, fmt.Errorf("file offset %d is negative", off))
	case mem.Len > math.MaxInt64-uint64(off):
		return f.fail(dir, mem, InvalidValue, fmt.Errorf("offset %d plus length %d overflows", off, mem.Len))
	case mem.Base == 0:
		return f.fail(dir, mem, InvalidValue, errors.New("the memory has no address"))
	case dir == route.Read && !f.st.Readable():
		return f.fail(dir, mem, InvalidFileOpenFlag, errors.New("the file was opened write-only"))
	case dir == route.Write && !f.st.Writable():
		return f.fail(dir, mem, InvalidFileOpenFlag, errors.New("the file was opened read-only"))
	}
	return nil
}

// locate finds out what mem is, by its registration or by asking the driver, and
// sets its GPU.
func (f *File) locate(dir route.Dir, mem *gpu.Span, b *Buffer) (gpu.Kind, error) {
	if b != nil {
		mem.Dev = b.span.Dev
		if mem.Off > b.span.Len || mem.Len > b.span.Len-mem.Off {
			return gpu.KindNone, f.fail(dir, *mem, InvalidMappingRange, fmt.Errorf("the registered buffer has %d bytes", b.span.Len))
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
		return gpu.KindNone, f.fail(dir, *mem, CUDAPointerRangeError, fmt.Errorf("the allocation is %d bytes at %v", p.Size, p.Base))
	}
	mem.Dev = p.Device
	return p.Kind, nil
}

func (f *File) fail(dir route.Dir, mem gpu.Span, c Code, err error) error {
	if op, ok := err.(*route.OpError); ok {
		err = op.Err // the file is named here
	}
	return &Error{Op: dir.String(), Object: f.st.Name + " <-> " + mem.String(), Code: c, Err: err}
}

func gpuName(i int) string { return fmt.Sprintf("gpu:%d", i) }
