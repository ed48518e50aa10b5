package cufileapi

import (
	"errors"
	"fmt"
	"runtime/debug"
	"structs"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/route"
)

// ioParams is CUfileIOParams_t.
type ioParams struct {
	_       structs.HostLayout
	Mode    int32
	Pad0    [4]byte
	Base    cmem.Ptr
	FileOff int64
	BufOff  int64
	Size    uint64
	File    handle.ID
	Opcode  int32
	Pad1    [4]byte
	Cookie  cmem.Ptr
}

// ioEvents is CUfileIOEvents_t. Ret is bytes, or a negated errno.
type ioEvents struct {
	_      structs.HostLayout
	Cookie cmem.Ptr
	Status int32
	Pad    [4]byte
	Ret    int64
}

const modeBatch = 1

func batchError(op string, code cufile.Code, format string, args ...any) error {
	return &cufile.Error{Op: op, Object: "batch", Code: code, Err: fmt.Errorf(format, args...)}
}

// BatchIOSetUp is cuFileBatchIOSetUp. Unlike most calls it does not open the driver.
func (a *API) BatchIOSetUp(out cmem.Ptr, n uint32) error {
	drv := a.drv.Load()
	if drv == nil || drv.UseCount() == 0 {
		return batchError("set up", cufile.InvalidValue, "driver is not open (fix: call cuFileDriverOpen first)")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if most := a.size(paramBatch, true); n == 0 || uint64(n) > most {
		return batchError("set up", cufile.InvalidValue, "%d entries: must be from 1 to %d", n, most)
	}
	cmem.Touch(out)
	b, err := drv.NewBatch(int(n))
	if err != nil {
		return err
	}
	id, ok := a.batches.Add(b)
	if !ok {
		return cufile.NoMemError
	}
	return cmem.Answer(out, id)
}

// batch finds a batch.
func (a *API) batch(op string, id handle.ID) (*cufile.Batch, error) {
	b, ok := a.batches.Get(id)
	if !ok {
		return nil, batchError(op, cufile.InvalidContextError, "unknown batch handle")
	}
	return b, nil
}

// BatchIOSubmit is cuFileBatchIOSubmit. It accepts all of the entries or none. The codes
// of refusals are those of NVIDIA's release 1.19, which say more than the one code of
// 1.15. The flags are reserved, and ignored as by NVIDIA's library: a program may work
// there that sets some.
func (a *API) BatchIOSubmit(id handle.ID, n uint32, params cmem.Ptr, _ uint32) error {
	const op = "submit"
	b, err := a.batch(op, id)
	switch {
	case err != nil:
		return err
	case n == 0:
		return batchError(op, cufile.InternalBatchSubmitError, "no entries")
	case n > cufile.MaxBatchSize:
		return batchError(op, cufile.InternalBatchSubmitError, "%d entries exceed the %d of any batch", n, cufile.MaxBatchSize)
	}
	reqs := make([]cufile.BatchRequest, n)
	entries := cmem.LoadAll[ioParams](params, int(n))
	for i := range reqs {
		if err := a.request(&entries[i], &reqs[i]); err != nil {
			return &cufile.Error{Op: op, Object: fmt.Sprintf("entry %d", i), Code: submitCode(err), Err: err}
		}
	}
	if err := b.Submit(reqs...); err != nil {
		return &cufile.Error{Op: op, Object: "entries", Code: submitCode(err), Err: err}
	}
	return nil
}

// submitCode is the code of a refusal, if it has one.
func submitCode(err error) cufile.Code {
	if code, ok := errors.AsType[cufile.Code](err); ok {
		return code
	}
	return cufile.InternalBatchSubmitError
}

// request converts an entry.
func (a *API) request(p *ioParams, q *cufile.BatchRequest) error {
	f, ok := a.files.Get(p.File)
	switch {
	case !ok:
		return cufile.HandleNotRegistered
	case p.Mode != modeBatch:
		return fmt.Errorf("invalid mode %d", p.Mode)
	case p.Opcode != int32(route.Read) && p.Opcode != int32(route.Write):
		return fmt.Errorf("invalid opcode %d", p.Opcode)
	case p.Base == 0 || p.BufOff < 0:
		return fmt.Errorf("invalid memory: address %#x, offset %d", p.Base, p.BufOff)
	case p.FileOff < 0:
		return fmt.Errorf("negative file offset %d: %w", p.FileOff, cufile.InvalidValue)
	}
	mem := gpu.Span{Base: gpu.Addr(p.Base), Off: uint64(p.BufOff), Len: p.Size}
	*q = cufile.BatchRequest{
		Request: cufile.Request{Dir: route.Dir(p.Opcode), File: f, Mem: mem, Off: p.FileOff},
		Cookie:  p.Cookie,
		Done:    func(e *cufile.Event) { a.ended(e, mem.Base) },
	}
	return nil
}

// ended counts and logs the end of an entry.
func (a *API) ended(e *cufile.Event, mem gpu.Addr) {
	if e.Status == cufile.Canceled {
		return
	}
	a.transferred(&e.Receipt, mem, e.Err)
	if e.Err != nil {
		a.Log("cuFileBatchIOSubmit", e.Err)
	}
}

// event converts an event. Bytes that moved before the operating system stopped a
// transfer count, as in cuFileRead.
func event(e *cufile.Event) ioEvents {
	out := ioEvents{Cookie: e.Cookie.(cmem.Ptr), Status: int32(e.Status)}
	switch {
	case e.Status == cufile.Canceled:
	case e.Err == nil:
		out.Ret = e.Receipt.Bytes
	case partial(e.Receipt.Bytes, e.Err):
		out.Status, out.Ret = int32(cufile.Complete), e.Receipt.Bytes
	default:
		out.Ret = -int64(errnoOf(e.Err))
	}
	return out
}

// errnoOf is the errno of an event, which cannot carry cuFile's codes.
func errnoOf(err error) unix.Errno {
	if e, ok := errors.AsType[unix.Errno](err); ok {
		return e
	}
	return unix.EIO
}

// guard runs fn outside of a call. A wild pointer is EFAULT: the guard of package
// dispatch does not cover goroutines.
func guard(fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		p := recover()
		if addr, ok := cmem.Fault(p); ok {
			err = fmt.Errorf("invalid pointer: fault at %#x: %w", addr, unix.EFAULT)
		} else if p != nil {
			err = fmt.Errorf("panic: %v: %w\n%s", p, unix.EFAULT, debug.Stack())
		}
	}()
	return fn()
}

// BatchIOGetStatus is cuFileBatchIOGetStatus. It waits for the timeout at most
// until there are least events, and returns as many as there is room for.
func (a *API) BatchIOGetStatus(id handle.ID, least uint32, room, events, timeout cmem.Ptr) error {
	b, err := a.batch("status", id)
	if err != nil {
		return err
	}
	n := cmem.Load[uint32](room)
	if least > n {
		return batchError("status", cufile.InvalidValue, "minimum of %d events exceeds the room for %d", least, n)
	}
	wait := time.Duration(-1)
	if timeout != 0 {
		t := cmem.Load[unix.Timespec](timeout)
		wait = max(time.Duration(t.Nano()), 0)
	}
	if n > 0 {
		cmem.Touch(events) // before events are taken that could not be returned
	}
	// The caller's room may be larger than what any batch has.
	got := make([]cufile.Event, min(n, cufile.MaxBatchSize))
	k, err := b.CollectFor(wait, min(int(least), len(got)), got)
	if err != nil {
		return err
	}
	out := make([]ioEvents, k)
	for i := range out {
		out[i] = event(&got[i])
	}
	cmem.StoreAll(events, out)
	return cmem.Answer(room, uint32(k))
}

// BatchIOCancel is cuFileBatchIOCancel. Entries that have not started are
// canceled; the others finish.
func (a *API) BatchIOCancel(id handle.ID) error {
	b, err := a.batch("cancel", id)
	if err != nil {
		return err
	}
	b.Cancel()
	return nil
}

// BatchIODestroy is cuFileBatchIODestroy. It waits for entries in flight,
// because the caller may free the memory next.
func (a *API) BatchIODestroy(id handle.ID) error {
	b, ok := a.batches.Remove(id)
	if !ok {
		return cufile.InvalidValue
	}
	return b.Close()
}
