package cufile

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/route"
)

const (
	// DefaultBatchSize is the most requests that a batch of a driver holds, unless
	// Config.BatchSize says otherwise.
	DefaultBatchSize = 128
	// MaxBatchSize is the largest Config.BatchSize.
	MaxBatchSize = 256
)

const (
	// batchWorkers is the number of groups of a batch that run at a time.
	batchWorkers = 16
	// A group has at most groupEntries requests and groupBytes bytes, so that small
	// requests share one call and none waits long for its neighbours.
	groupEntries = 16
	groupBytes   = 1 << 20
)

// A BatchRequest is a request of a batch.
type BatchRequest struct {
	Request
	Cookie any // of the event
	// Done, if set, is called when the request has ended, before its event can be
	// collected.
	Done func(*Event)
}

// A Status is how a request of a batch ended. The numbers are cuFile's.
type Status int32

const (
	Canceled Status = 0x08
	Complete Status = 0x10
	Failed   Status = 0x40
)

func (s Status) String() string {
	switch s {
	case Canceled:
		return "canceled"
	case Complete:
		return "complete"
	case Failed:
		return "failed"
	}
	return fmt.Sprintf("Status(%#x)", int32(s))
}

// An Event is the end of a request.
type Event struct {
	Cookie  any
	Status  Status
	Receipt route.Receipt // not of a canceled request
	Err     error         // of a failed one
}

// A Batch runs requests in the background. They may mix files, directions and kinds of
// memory, and run in any order and at the same time. A request uses room from Submit
// until its event is collected; each event is delivered once.
type Batch struct {
	drv  *Driver
	room int

	mu      sync.Mutex
	changed chan struct{} // closed and replaced when a caller that waits may go on
	wanted  int           // the fewest events for which a caller waits; 0 for none
	waiting []BatchRequest
	active  int // requests that workers run
	workers int
	events  []Event
	store   []Event // where events begin when none are left
	closed  bool
}

func batchError(op string, code Code, format string, args ...any) error {
	return &Error{Op: op, Object: "batch", Code: code, Err: fmt.Errorf(format, args...)}
}

// NewBatch returns a batch with room for n requests, from 1 to Properties().BatchSize.
func (d *Driver) NewBatch(n int) (*Batch, error) {
	if d.UseCount() == 0 {
		return nil, batchError("set up", DriverNotInitialized, "the driver is not open")
	}
	if most := d.Properties().BatchSize; n < 1 || n > most {
		return nil, batchError("set up", InvalidValue, "%d requests: must be from 1 to %d", n, most)
	}
	store := make([]Event, 0, n) // an event is large
	return &Batch{drv: d, room: n, changed: make(chan struct{}), store: store, events: store}, nil
}

// Submit starts requests, all or none of them. It does not wait. More than there is
// room for are refused with BatchFull.
func (b *Batch) Submit(reqs ...BatchRequest) error {
	for i := range reqs {
		q := &reqs[i]
		if q.File == nil || q.Dir > route.Write || q.Off < 0 || q.Mem.Base == 0 {
			return batchError("submit", InvalidValue, "request %d: direction %d, offset %d, memory %v: needs a file, a direction, an offset and memory", i, q.Dir, q.Off, q.Mem)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	left := b.room - len(b.waiting) - b.active - len(b.events)
	switch {
	case b.closed:
		return batchError("submit", InvalidValue, "the batch was closed")
	case len(reqs) > b.room:
		return batchError("submit", BatchFull, "%d requests exceed the %d of the batch", len(reqs), b.room)
	case len(reqs) > left:
		return batchError("submit", BatchFull, "%d requests, but only %d free until events are collected", len(reqs), left)
	}
	b.waiting = append(b.waiting, reqs...)
	for rest := reqs; len(rest) > 0 && b.workers < batchWorkers; rest = rest[group(rest):] {
		b.workers++
		go b.work()
	}
	return nil
}

// group is the number of requests, from the first on, that run in one call: those of
// one file and direction.
func group(reqs []BatchRequest) int {
	var bytes uint64
	for i := range reqs {
		q := &reqs[i]
		if i == groupEntries || q.File != reqs[0].File || q.Dir != reqs[0].Dir || i > 0 && q.Mem.Len > groupBytes-bytes {
			return i
		}
		if bytes += min(q.Mem.Len, groupBytes); bytes == groupBytes {
			return i + 1
		}
	}
	return len(reqs)
}

// work runs groups until no request waits.
func (b *Batch) work() {
	for reqs := b.take(); len(reqs) > 0; reqs = b.take() {
		b.deliver(b.drv.runGroup(reqs))
	}
}

// workOnce runs a group on the goroutine of a caller who waits for all, without an end:
// it is there sooner than a worker that must be woken. It returns false if no request
// waits.
func (b *Batch) workOnce() bool {
	b.mu.Lock()
	b.workers++
	b.mu.Unlock()
	reqs := b.take()
	if len(reqs) == 0 {
		return false // take has counted the worker out
	}
	b.deliver(b.drv.runGroup(reqs))
	b.mu.Lock()
	b.workers--
	b.mu.Unlock()
	return true
}

func (b *Batch) take() []BatchRequest {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := group(b.waiting)
	if n == 0 {
		b.workers--
	}
	reqs := b.waiting[:n:n]
	b.waiting = b.waiting[n:]
	b.active += n
	return reqs
}

func (b *Batch) deliver(events []Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.active -= len(events)
	b.events = append(b.events, events...)
	if len(b.events) >= b.wanted || len(b.waiting) == 0 && b.active == 0 {
		close(b.changed)
		b.changed, b.wanted = make(chan struct{}), 0
	}
}

// runGroup moves a group in one call and returns its events. If the call fails, the
// requests that it did not complete run one by one: Do returns one error for all.
func (d *Driver) runGroup(batch []BatchRequest) []Event {
	reqs, res, events := make([]Request, len(batch)), make([]route.Receipt, len(batch)), make([]Event, len(batch))
	together := len(batch) > 1
	for i := range batch {
		q := &batch[i]
		reqs[i] = q.Request
		events[i] = Event{Cookie: q.Cookie, Status: Complete, Receipt: route.Receipt{Dir: q.Dir, Machine: d.kind}}
		reqs[i].Mem.Len, events[i].Err = q.File.inject(q.Dir, q.Mem)
		together = together && events[i].Err == nil
	}
	together = together && guard(func() error { return d.do(context.Background(), reqs, res, true) }) == nil
	for i := range batch {
		q, e := &batch[i], &events[i]
		if e.Err == nil {
			e.Receipt = res[i]
		}
		if r := &reqs[i]; e.Err == nil && !together && (res[i].Bytes == 0 || uint64(res[i].Bytes) != r.Mem.Len) {
			e.Err = guard(func() (err error) {
				e.Receipt, err = r.File.one(context.Background(), r.Dir, r.Mem, r.Off, true)
				return err
			})
		}
		if e.Err != nil {
			e.Status = Failed
		}
		if q.Done != nil {
			q.Done(e)
		}
	}
	return events
}

// guard runs fn on the goroutine of a worker. A fault at memory that the caller has
// unmapped, and any panic, is the error of the request and not the end of the process.
func guard(fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch p := recover().(type) {
		case nil:
		case interface{ Addr() uintptr }:
			err = fmt.Errorf("invalid pointer: fault at %#x: %w", p.Addr(), unix.EFAULT)
		default:
			err = fmt.Errorf("panic: %v: %w\n%s", p, unix.EFAULT, debug.Stack())
		}
	}()
	return fn()
}

// Collect moves up to len(events) events to the caller as soon as there are least of
// them, no more can arrive, or ctx ends. With ctx ended, it returns what there is and
// no error: its end is the timeout.
func (b *Batch) Collect(ctx context.Context, least int, events []Event) (int, error) {
	if ctx == nil || least < 0 || least > len(events) {
		return 0, batchError("collect events of", InvalidValue, "a minimum of %d with room for %d, and a context (nil: %t)", least, len(events), ctx == nil)
	}
	return b.collect(ctx.Done(), least, events), nil
}

func (b *Batch) collect(ended <-chan struct{}, least int, events []Event) int {
	for {
		b.mu.Lock()
		idle := len(b.waiting) == 0 && b.active == 0
		changed := b.changed
		if len(b.events) >= least || idle {
			n := copy(events, b.events)
			clear(b.events[:n]) // cookies and receipts
			if b.events = b.events[n:]; len(b.events) == 0 {
				b.events = b.store[:0]
			}
			b.mu.Unlock()
			return n
		}
		if b.wanted == 0 || least < b.wanted {
			b.wanted = max(least, 1)
		}
		all := least >= len(b.events)+len(b.waiting)+b.active
		b.mu.Unlock()
		if all && ended == nil && b.workOnce() {
			continue
		}
		select {
		case <-changed:
		case <-ended:
			least, ended = 0, nil
		}
	}
}

// CollectFor is Collect with a timeout; a negative one waits without end.
func (b *Batch) CollectFor(timeout time.Duration, least int, events []Event) (int, error) {
	if timeout < 0 {
		return b.Collect(context.Background(), least, events)
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return b.Collect(ctx, least, events)
}

// Cancel ends the requests that have not started. Their events say so; the others
// finish.
func (b *Batch) Cancel() {
	b.mu.Lock()
	waiting := b.waiting
	b.waiting = nil
	b.active += len(waiting) // until their events are there
	b.mu.Unlock()
	events := make([]Event, len(waiting))
	for i := range waiting {
		events[i] = Event{Cookie: waiting[i].Cookie, Status: Canceled}
		if waiting[i].Done != nil {
			waiting[i].Done(&events[i])
		}
	}
	b.deliver(events)
}

// Close cancels requests that have not started and waits for the others, because the
// caller may free their memory next. Events that were not collected are lost.
func (b *Batch) Close() error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return batchError("close", InvalidValue, "the batch was closed before")
	}
	b.closed = true
	b.mu.Unlock()
	b.Cancel()
	for {
		b.mu.Lock()
		changed, active := b.changed, b.active
		b.mu.Unlock()
		if active == 0 {
			return nil
		}
		<-changed
	}
}
