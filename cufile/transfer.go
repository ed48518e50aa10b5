package cufile

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/route"
)

// A call is one transfer on its way. Calls are pooled, so that a transfer
// allocates nothing.
type call struct {
	ops [1]route.Op
	res [1]route.Receipt
}

var calls = sync.Pool{New: func() any { return new(call) }}

func (f *File) do(ctx context.Context, dir route.Dir, mem gpu.Span, off int64) (route.Receipt, error) {
	f.io.RLock()
	defer f.io.RUnlock()
	if err := f.check(dir, mem, off); err != nil {
		return route.Receipt{Dir: dir}, err
	}
	if mem.Len == 0 {
		return route.Receipt{Dir: dir}, nil
	}
	b := f.hold(mem.Base)
	if b != nil {
		defer b.io.RUnlock()
	}
	kind, err := f.locate(dir, &mem, b)
	if err != nil {
		return route.Receipt{Dir: dir}, err
	}
	p, err := f.plan(placeOf(mem.Dev, kind))
	if err != nil {
		return route.Receipt{Dir: dir}, err
	}
	c := calls.Get().(*call)
	c.ops[0] = route.Op{Dir: dir, File: f.st, Off: off, Mem: mem, Kind: kind}
	c.res[0] = route.Receipt{}
	err = p.Run(ctx, c.ops[:], c.res[:])
	r := c.res[0]
	c.ops[0] = route.Op{}
	calls.Put(c)
	f.stats.add(&r, err)
	if err != nil && !errors.Is(err, ctx.Err()) {
		err = f.fail(dir, mem, codeFor(err), err)
	}
	return r, err
}

// hold finds the registered buffer with this base and keeps it registered until
// its io lock is released; nil where there is none.
func (f *File) hold(base gpu.Addr) *Buffer {
	b := f.drv.buffers.find(base)
	if b == nil {
		return nil
	}
	b.io.RLock()
	if b.closed {
		b.io.RUnlock()
		return nil
	}
	return b
}

// check holds the arguments against the rules that need no look-up.
func (f *File) check(dir route.Dir, mem gpu.Span, off int64) error {
	switch {
	case f.closed:
		return f.fail(dir, mem, HandleNotRegistered, errors.New("the handle was deregistered"))
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
	p, err := f.drv.pointer(mem.Addr())
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
	return &Error{Op: dir.String(), Object: f.st.Name + " <-> " + mem.String(), Code: c, Err: err}
}

func gpuName(i int) string { return fmt.Sprintf("gpu:%d", i) }
