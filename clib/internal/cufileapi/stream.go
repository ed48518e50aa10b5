package cufileapi

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/clib/internal/softcuda"
	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/route"
)

// Flags of cuFileStreamRegister: what is known when a transfer is enqueued, and is
// read then. Another says that all is aligned, which nothing here needs to know. The
// rest are reserved, and ignored as by NVIDIA's library.
const (
	fixedBufOff  = 1
	fixedFileOff = 2
	fixedSize    = 4
)

// A registeredStream is a stream that the program has registered.
type registeredStream struct {
	flags uint32
	// used says that a transfer was enqueued: the handle is not checked again, which
	// would take a tenth of the call.
	used  atomic.Bool
	trust cmem.Trust // in the arguments of its transfers
}

// StreamRegister is cuFileStreamRegister.
func (a *API) StreamRegister(stream handle.ID, flags uint32) error {
	if _, err := a.driver(); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, known := a.streams[stream]; known {
		return &cufile.Error{Op: "register", Object: "stream", Code: cufile.InvalidValue, Err: errors.New("registered already")}
	}
	a.streams[stream] = &registeredStream{flags: flags}
	return nil
}

// StreamDeregister is cuFileStreamDeregister. Transfers in the stream are still done.
func (a *API) StreamDeregister(stream handle.ID) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, known := a.streams[stream]; !known {
		return &cufile.Error{Op: "deregister", Object: "stream", Code: cufile.InvalidValue, Err: errors.New("not registered")}
	}
	delete(a.streams, stream)
	return nil
}

// ReadAsync is cuFileReadAsync.
func (a *API) ReadAsync(t *softcuda.Thread, id handle.ID, base, size, off, bufOff, done cmem.Ptr, stream handle.ID) error {
	return a.enqueue(t, route.Read, id, stream, streamArgs{base, size, off, bufOff, done})
}

// WriteAsync is cuFileWriteAsync.
func (a *API) WriteAsync(t *softcuda.Thread, id handle.ID, base, size, off, bufOff, done cmem.Ptr, stream handle.ID) error {
	return a.enqueue(t, route.Write, id, stream, streamArgs{base, size, off, bufOff, done})
}

// streamArgs are the pointers of a transfer. They are followed when its turn comes.
type streamArgs struct{ base, size, off, bufOff, done cmem.Ptr }

func (a *API) enqueue(t *softcuda.Thread, dir route.Dir, id, stream handle.ID, args streamArgs) error {
	if id == 0 {
		return cufile.InvalidValue
	}
	f, ok := a.files.Get(id)
	if !ok {
		return cufile.HandleNotRegistered
	}
	r := a.registered(stream)
	now := args.read(&r.trust)
	s, err := a.Stream(t, stream, r.used.Load())
	if err != nil {
		return &cufile.Error{Op: "find", Object: fmt.Sprintf("stream %#x", uint64(stream)), Code: cufile.CUDADriverError, Err: err}
	}
	r.used.Store(true)
	c := newStreamCall()
	c.api, c.dir, c.args, c.flags, c.values = a, dir, args, r.flags, now
	op := cufile.StreamOp{Mem: gpu.Span{Base: gpu.Addr(args.base)}, Args: c.later, Done: c.done}
	if dir == route.Read {
		err = f.ReadAsync(s, op)
	} else {
		err = f.WriteAsync(s, op)
	}
	if err != nil {
		c.release() // it is not called
	}
	return err
}

// A streamCall is a transfer in a stream, from the call to its end. It is used again,
// because the call has no time for allocations.
type streamCall struct {
	api    *API
	dir    route.Dir
	args   streamArgs
	flags  uint32
	values values

	later func() (gpu.Span, int64, error)
	done  func(route.Receipt, error)
}

var streamCalls sync.Pool

func newStreamCall() *streamCall {
	if c, ok := streamCalls.Get().(*streamCall); ok {
		return c
	}
	c := new(streamCall)
	c.later = c.span
	c.done = func(r route.Receipt, err error) {
		c.api.finish(c.dir, &c.args, r, err)
		c.release()
	}
	return c
}

func (c *streamCall) release() {
	c.api = nil
	streamCalls.Put(c)
}

// registered is what is known of a stream: for one that is not registered, nothing.
func (a *API) registered(id handle.ID) *registeredStream {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r := a.streams[id]; r != nil {
		return r
	}
	return new(registeredStream)
}

// values are what the pointers of a transfer point to.
type values struct {
	size        uint64
	off, bufOff int64
}

// read reads the arguments in the call, where a fault at a wild pointer becomes a code.
// The result must be writable, too.
func (p *streamArgs) read(trust *cmem.Trust) values {
	w := trust.ExchangeWords(p.size, p.off, p.bufOff, p.done)
	return values{w[0], int64(w[1]), int64(w[2])}
}

// span reads the arguments when the turn of the transfer comes. Those that are fixed by
// flags of the stream were read by the call.
func (c *streamCall) span() (mem gpu.Span, at int64, err error) {
	const all = fixedSize | fixedFileOff | fixedBufOff
	v := c.values
	err = guard(func() error {
		if c.flags&all != all {
			v = c.args.update(c.flags, v)
		}
		mem, err = span(c.args.base, v.bufOff, v.size)
		return err
	})
	return mem, v.off, err
}

// update reads the arguments that are not fixed.
func (p *streamArgs) update(flags uint32, v values) values {
	w := cmem.LoadWords(p.size, p.off, p.bufOff)
	if flags&fixedSize == 0 {
		v.size = w[0]
	}
	if flags&fixedFileOff == 0 {
		v.off = int64(w[1])
	}
	if flags&fixedBufOff == 0 {
		v.bufOff = int64(w[2])
	}
	return v
}

// finish stores the result: bytes, or the negated errno that cuFileRead would have set.
func (a *API) finish(dir route.Dir, p *streamArgs, r route.Receipt, err error) {
	a.transferred(&r, gpu.Addr(p.base), err)
	n := r.Bytes
	if err != nil && !partial(n, err) {
		n = -int64(Errno(err))
	}
	name := "cuFileReadAsync"
	if dir == route.Write {
		name = "cuFileWriteAsync"
	}
	if err != nil {
		a.Log(name, err)
	}
	if err := guard(func() error { cmem.Store(p.done, n); return nil }); err != nil {
		a.Log(name, err)
	}
}

// lastDefault is the last of the numbers of default streams: NULL, the legacy
// one and that of the thread.
const lastDefault = 2

// CheckStream rejects an invalid stream. NVIDIA's are pointers, which libcuda
// follows without a check.
func CheckStream(stream handle.ID) (err error) {
	if stream <= lastDefault {
		return nil
	}
	defer func() {
		if recover() != nil {
			err = gpu.ErrInvalidHandle
		}
	}()
	cmem.Probe(cmem.Ptr(stream))
	return nil
}
