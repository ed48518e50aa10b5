package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/route"
)

// An asyncCaller enqueues the blocks of a call on a stream of its own, and waits for the
// stream.
type asyncCaller struct {
	files  []*cufile.File
	mem    gpu.Span
	stream gpu.Stream

	mu   sync.Mutex // the stream reports results from other goroutines
	sum  *route.Receipt
	done int
	errs error
}

// newAsyncCaller makes the stream. release frees the caller's memory.
func newAsyncCaller(dev gpu.Device, files []*cufile.File, mem gpu.Span, release func()) (*caller, error) {
	s, err := dev.NewStream()
	if err != nil {
		release()
		return nil, err
	}
	a := &asyncCaller{files: files, mem: mem, stream: s}
	return &caller{a.do, func() { s.Close(); release() }}, nil
}

func (a *asyncCaller) do(_ context.Context, dir route.Dir, offs []int64, block int64, sum *route.Receipt) error {
	a.mu.Lock()
	a.sum, a.done, a.errs = sum, 0, nil
	a.mu.Unlock()
	var err error
	for i, off := range offs {
		file, at := stripe(len(a.files), off, block)
		enqueue := a.files[file].ReadAsync
		if dir == route.Write {
			enqueue = a.files[file].WriteAsync
		}
		op := cufile.StreamOp{Mem: a.mem.Slice(uint64(int64(i)*block), uint64(block)), Off: at, Done: a.finished}
		if err = enqueue(a.stream, op); err != nil {
			break // what was enqueued still uses the memory
		}
	}
	err = errors.Join(err, a.stream.Synchronize())
	a.mu.Lock()
	defer a.mu.Unlock()
	if err = errors.Join(err, a.errs); err == nil && a.done < len(offs) {
		err = fmt.Errorf("the stream ended after %d of %d transfers", a.done, len(offs))
	}
	return err
}

// finished adds the result of a block.
func (a *asyncCaller) finished(r route.Receipt, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sum.Add(&r)
	a.done++
	a.errs = errors.Join(a.errs, err)
}
