package cufileapi

import (
	"errors"
	"fmt"
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

// batchWorkers is how many entries of a batch run at a time.
const batchWorkers = 16

// A batch is a CUfileBatchHandle_t: entries that were submitted and whose events
// were not collected.
type batch struct {
	room int

	mu      sync.Mutex
	changed chan struct{} // closed and made anew with every event
	waiting []job
	active  int // jobs that a worker has
	workers int
	events  []ioEvents
}

// A job is an entry whose arguments were found right.
type job struct {
	dir    route.Dir
	file   *cufile.File
	mem    gpu.Span
	off    int64
	cookie cmem.Ptr
}

func refused(op string, code cufile.Code, format string, args ...any) error {
	return &cufile.Error{Op: op, Object: "batch", Code: code, Err: fmt.Errorf(format, args...)}
}

// BatchIOSetUp is cuFileBatchIOSetUp.
func (a *API) BatchIOSetUp(out cmem.Ptr, n uint32) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if most := a.size(paramBatch, true); n == 0 || uint64(n) > most {
		return refused("set up", cufile.InvalidValue, "%d entries: from 1 to %d are possible", n, most)
	}
	cmem.Touch(out)
	id, ok := a.batches.Add(&batch{room: int(n), changed: make(chan struct{})})
	if !ok {
		return cufile.NoMemError
	}
	cmem.Store(out, id)
	return nil
}

// BatchIOSubmit is cuFileBatchIOSubmit: all of the entries, or none.
func (a *API) BatchIOSubmit(id handle.ID, n uint32, params cmem.Ptr, flags uint32) error {
	const op = "submit"
	b, ok := a.batches.Get(id)
	switch {
	case !ok:
		return refused(op, cufile.InternalBatchSubmitError, "no such batch")
	case n == 0 || flags != 0:
		return refused(op, cufile.InternalBatchSubmitError, "%d entries, flags %#x", n, flags)
	case int(n) > b.room:
		return refused(op, cufile.InternalBatchSubmitError, "%d entries, and the batch was set up for %d", n, b.room)
	}
	jobs := make([]job, n)
	for i := range jobs {
		p := cmem.Load[ioParams](cmem.At[ioParams](params, i))
		if err := a.job(&p, &jobs[i]); err != nil {
			return &cufile.Error{Op: op, Object: fmt.Sprintf("entry %d", i), Code: cufile.InternalBatchSubmitError, Err: err}
		}
	}
	return b.submit(a, jobs)
}

// job checks an entry.
func (a *API) job(p *ioParams, j *job) error {
	f, ok := a.files.Get(p.File)
	switch {
	case !ok:
		return errors.New("the file is not registered")
	case p.Mode != modeBatch:
		return fmt.Errorf("mode %d", p.Mode)
	case p.Opcode != int32(route.Read) && p.Opcode != int32(route.Write):
		return fmt.Errorf("opcode %d", p.Opcode)
	case p.Base == 0 || p.BufOff < 0:
		return fmt.Errorf("memory at %#x, offset %d", p.Base, p.BufOff)
	case p.FileOff < 0:
		return fmt.Errorf("file offset %d", p.FileOff)
	}
	*j = job{route.Dir(p.Opcode), f, gpu.Span{Base: gpu.Addr(p.Base), Off: uint64(p.BufOff), Len: p.Size}, p.FileOff, p.Cookie}
	return nil
}

// submit takes jobs in and sees to it that enough workers are there.
func (b *batch) submit(a *API, jobs []job) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if left := b.room - len(b.waiting) - b.active - len(b.events); len(jobs) > left {
		return refused("submit", cufile.InternalBatchSubmitError, "%d entries, and there is room for %d until events are collected", len(jobs), left)
	}
	b.waiting = append(b.waiting, jobs...)
	for range min(len(jobs), batchWorkers-b.workers) {
		b.workers++
		go b.work(a)
	}
	return nil
}

// work does jobs until none wait.
func (b *batch) work(a *API) {
	for {
		j, ok := b.take()
		if !ok {
			return
		}
		b.give(j.run(a))
	}
}

func (b *batch) take() (j job, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) == 0 {
		b.workers--
		return job{}, false
	}
	j, b.waiting = b.waiting[0], b.waiting[1:]
	b.active++
	return j, true
}

func (b *batch) give(e ioEvents) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.active--
	b.events = append(b.events, e)
	b.signal()
}

func (j *job) run(a *API) ioEvents {
	n, err := a.move(j.dir, j.file, j.mem, j.off)
	if err != nil {
		return ioEvents{Cookie: j.cookie, Status: statusFailed, Ret: -int64(errnoOf(err))}
	}
	return ioEvents{Cookie: j.cookie, Status: statusComplete, Ret: n}
}

// errnoOf is the errno for an event, which has no room for cuFile's codes.
func errnoOf(err error) unix.Errno {
	if e, ok := errors.AsType[unix.Errno](err); ok {
		return e
	}
	return unix.EIO
}

// signal wakes those who wait. Call with b.mu held.
func (b *batch) signal() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// BatchIOGetStatus is cuFileBatchIOGetStatus: it waits until least events are
// there, for as long as it may, and hands out as many as there is room for.
func (a *API) BatchIOGetStatus(id handle.ID, least uint32, room, events, timeout cmem.Ptr) error {
	b, ok := a.batches.Get(id)
	if !ok {
		return refused("status", cufile.InternalBatchGetStatusError, "no such batch")
	}
	n := cmem.Load[uint32](room)
	if least > n {
		return refused("status", cufile.InvalidValue, "at least %d events are wanted, and there is room for %d", least, n)
	}
	var after <-chan time.Time
	if timeout != 0 {
		t := cmem.Load[unix.Timespec](timeout)
		after = time.After(time.Duration(t.Nano()))
	}
	got := b.collect(int(least), int(n), after)
	for i, e := range got {
		cmem.Store(cmem.At[ioEvents](events, i), e)
	}
	cmem.Store(room, uint32(len(got)))
	return nil
}

// collect takes up to most events, once there are least of them or no more can
// come.
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

// BatchIOCancel is cuFileBatchIOCancel: what has not begun does not begin.
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

// BatchIODestroy is cuFileBatchIODestroy. It waits for what has begun: the
// caller may free the memory next.
func (a *API) BatchIODestroy(id handle.ID) {
	if b, ok := a.batches.Remove(id); ok {
		b.end()
	}
}

func (b *batch) end() {
	b.cancel()
	for {
		b.mu.Lock()
		active, changed := b.active, b.changed
		b.mu.Unlock()
		if active == 0 {
			return
		}
		<-changed
	}
}
