package cufileapi

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"structs"
	"sync"
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

const (
	modeBatch = 1

	statusCanceled = 0x08
	statusComplete = 0x10
	statusFailed   = 0x40
)

const (
	// batchWorkers is the number of groups of a batch that run at a time.
	batchWorkers = 16
	// A group has at most groupEntries entries and groupBytes bytes, so that
	// small entries share one call and no entry waits long for its neighbours.
	groupEntries = 16
	groupBytes   = 1 << 20
)

// A batch is a CUfileBatchHandle_t: the entries that were submitted and whose
// events were not collected.
type batch struct {
	room int

	mu      sync.Mutex
	changed chan struct{} // closed and replaced with every event
	waiting []job
	active  int // jobs that workers run
	workers int
	events  []ioEvents
}

// A job is an entry whose arguments are valid.
type job struct {
	cufile.Request
	cookie cmem.Ptr
}

func batchError(op string, code cufile.Code, format string, args ...any) error {
	return &cufile.Error{Op: op, Object: "batch", Code: code, Err: fmt.Errorf(format, args...)}
}

// BatchIOSetUp is cuFileBatchIOSetUp. Unlike most calls it does not open the driver.
func (a *API) BatchIOSetUp(out cmem.Ptr, n uint32) error {
	if a.UseCount() == 0 {
		return batchError("set up", cufile.InvalidValue, "driver is not open (fix: call cuFileDriverOpen first)")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if most := a.size(paramBatch, true); n == 0 || uint64(n) > most {
		return batchError("set up", cufile.InvalidValue, "%d entries: must be from 1 to %d", n, most)
	}
	cmem.Touch(out)
	id, ok := a.batches.Add(&batch{room: int(n), changed: make(chan struct{})})
	if !ok {
		return cufile.NoMemError
	}
	cmem.Store(out, id)
	return nil
}

// BatchIOSubmit is cuFileBatchIOSubmit. It accepts all of the entries or none.
func (a *API) BatchIOSubmit(id handle.ID, n uint32, params cmem.Ptr, flags uint32) error {
	const op, code = "submit", cufile.InternalBatchSubmitError
	b, ok := a.batches.Get(id)
	switch {
	case !ok:
		return batchError(op, code, "unknown batch handle")
	case n == 0 || flags != 0:
		return batchError(op, code, "%d entries, flags %#x: needs entries and no flags", n, flags)
	case int(n) > b.room:
		return batchError(op, code, "%d entries exceed the %d of the batch", n, b.room)
	}
	jobs := make([]job, n)
	entries := cmem.LoadAll[ioParams](params, int(n))
	for i := range jobs {
		if err := a.job(&entries[i], &jobs[i]); err != nil {
			return &cufile.Error{Op: op, Object: fmt.Sprintf("entry %d", i), Code: code, Err: err}
		}
	}
	return b.submit(a, jobs)
}

// job checks an entry.
func (a *API) job(p *ioParams, j *job) error {
	f, ok := a.files.Get(p.File)
	switch {
	case !ok:
		return errors.New("file is not registered")
	case p.Mode != modeBatch:
		return fmt.Errorf("invalid mode %d", p.Mode)
	case p.Opcode != int32(route.Read) && p.Opcode != int32(route.Write):
		return fmt.Errorf("invalid opcode %d", p.Opcode)
	case p.Base == 0 || p.BufOff < 0:
		return fmt.Errorf("invalid memory: address %#x, offset %d", p.Base, p.BufOff)
	case p.FileOff < 0:
		return fmt.Errorf("negative file offset %d", p.FileOff)
	}
	mem := gpu.Span{Base: gpu.Addr(p.Base), Off: uint64(p.BufOff), Len: p.Size}
	*j = job{cufile.Request{Dir: route.Dir(p.Opcode), File: f, Mem: mem, Off: p.FileOff}, p.Cookie}
	return nil
}

// submit queues jobs and starts a worker for each group, up to batchWorkers.
func (b *batch) submit(a *API, jobs []job) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if left := b.room - len(b.waiting) - b.active - len(b.events); len(jobs) > left {
		return batchError("submit", cufile.InternalBatchSubmitError, "%d entries, but only %d free until events are collected", len(jobs), left)
	}
	b.waiting = append(b.waiting, jobs...)
	for rest := jobs; len(rest) > 0 && b.workers < batchWorkers; rest = rest[group(rest):] {
		b.workers++
		go b.work(a)
	}
	return nil
}

// group is the number of jobs, from the first on, that run in one call: those
// of one file and direction.
func group(jobs []job) int {
	var bytes uint64
	for i := range jobs {
		j := &jobs[i]
		if i == groupEntries || j.File != jobs[0].File || j.Dir != jobs[0].Dir || i > 0 && j.Mem.Len > groupBytes-bytes {
			return i
		}
		if bytes += min(j.Mem.Len, groupBytes); bytes == groupBytes {
			return i + 1
		}
	}
	return len(jobs)
}

// work runs groups until no job waits.
func (b *batch) work(a *API) {
	for jobs := b.take(); len(jobs) > 0; jobs = b.take() {
		b.deliver(a.run(jobs))
	}
}

func (b *batch) take() []job {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := group(b.waiting)
	if n == 0 {
		b.workers--
	}
	jobs := b.waiting[:n:n]
	b.waiting = b.waiting[n:]
	b.active += n
	return jobs
}

func (b *batch) deliver(events []ioEvents) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.active -= len(events)
	b.events = append(b.events, events...)
	b.signal()
}

// run moves a group in one call and returns its events. If the call fails, the
// entries that it did not complete run one by one: Do returns one error for all.
func (a *API) run(jobs []job) []ioEvents {
	reqs, res := make([]cufile.Request, len(jobs)), make([]route.Receipt, len(jobs))
	for i := range jobs {
		reqs[i] = jobs[i].Request
	}
	together := len(jobs) > 1 && guard(func() error {
		return a.drv.Load().Do(context.Background(), reqs, res)
	}) == nil
	events := make([]ioEvents, len(jobs))
	for i, q := range reqs {
		r, n := &res[i], res[i].Bytes
		var err error
		if together || n > 0 && uint64(n) == q.Mem.Len {
			a.transferred(r, q.Mem.Base, nil)
		} else {
			err = guard(func() (err error) {
				n, err = a.move(q.Dir, q.File, q.Mem, q.Off)
				return err
			})
		}
		events[i] = ioEvents{Cookie: jobs[i].cookie, Status: statusComplete, Ret: n}
		if err != nil {
			events[i].Status, events[i].Ret = statusFailed, -int64(errnoOf(err))
			a.Log("cuFileBatchIOSubmit", err)
		}
	}
	return events
}

// guard runs fn. A panic becomes EFAULT, as in package dispatch, whose guard does
// not cover workers.
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

// errnoOf is the errno of an event, which cannot carry cuFile's codes.
func errnoOf(err error) unix.Errno {
	if e, ok := errors.AsType[unix.Errno](err); ok {
		return e
	}
	return unix.EIO
}

// signal wakes the callers that wait for events. Call with b.mu held.
func (b *batch) signal() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// BatchIOGetStatus is cuFileBatchIOGetStatus. It waits for the timeout at most
// until there are least events, and returns as many as there is room for.
func (a *API) BatchIOGetStatus(id handle.ID, least uint32, room, events, timeout cmem.Ptr) error {
	b, ok := a.batches.Get(id)
	if !ok {
		return batchError("status", cufile.InternalBatchGetStatusError, "unknown batch handle")
	}
	n := cmem.Load[uint32](room)
	if least > n {
		return batchError("status", cufile.InvalidValue, "minimum of %d events exceeds the room for %d", least, n)
	}
	var after <-chan time.Time
	if timeout != 0 {
		t := cmem.Load[unix.Timespec](timeout)
		after = time.After(time.Duration(t.Nano()))
	}
	if n > 0 {
		cmem.Touch(events) // before events are taken that could not be returned
	}
	got := b.collect(int(least), int(n), after)
	cmem.StoreAll(events, got)
	cmem.Store(room, uint32(len(got)))
	return nil
}

// collect removes up to most events as soon as there are least of them or no
// more can arrive.
func (b *batch) collect(least, most int, after <-chan time.Time) []ioEvents {
	for {
		b.mu.Lock()
		idle := len(b.waiting) == 0 && b.active == 0
		changed := b.changed
		if len(b.events) >= least || idle {
			n := min(most, len(b.events))
			got := b.events[:n:n]
			b.events = b.events[n:]
			b.mu.Unlock()
			return got
		}
		b.mu.Unlock()
		select {
		case <-changed:
		case <-after:
			least = 0
		}
	}
}

// BatchIOCancel is cuFileBatchIOCancel. Entries that have not started are
// canceled; the others finish.
func (a *API) BatchIOCancel(id handle.ID) error {
	if b, ok := a.batches.Get(id); ok {
		b.cancel()
	}
	return nil
}

func (b *batch) cancel() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, j := range b.waiting {
		b.events = append(b.events, ioEvents{Cookie: j.cookie, Status: statusCanceled})
	}
	b.waiting = nil
	b.signal()
}

// BatchIODestroy is cuFileBatchIODestroy. It waits for entries in flight,
// because the caller may free the memory next.
func (a *API) BatchIODestroy(id handle.ID) error {
	b, ok := a.batches.Remove(id)
	if !ok {
		return cufile.InvalidValue
	}
	b.end()
	return nil
}

// end cancels waiting entries and waits for those in flight.
func (b *batch) end() {
	b.cancel()
	b.collect(math.MaxInt, 0, nil)
}
