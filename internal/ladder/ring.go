package ladder

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/ring"
	"github.com/culvert-io/culvert/route"
)

// A ringRoute stages through pinned memory that is allocated once and reused.
type ringRoute struct {
	basic
	dev  gpu.Device
	log  *slog.Logger
	set  Settings
	pool sync.Pool // of *ringBatch
	// window is an op's memory through BAR1, nil if the ring must not use it; a nil
	// function is for no op. It is set before the first transfer.
	window func(*Op) []byte

	mu    sync.Mutex
	ring  *ring.Ring     // made at first use: a process that moves nothing pins nothing
	old   sync.WaitGroup // rings with other slots that are being closed
	calls atomic.Int32   // of Run, now
	// absent says that no memory can be pinned.
	absent atomic.Pointer[route.Decline]
}

// A ringBatch holds the arguments of one call, reused.
type ringBatch struct {
	reqs []ring.Request
	res  []ring.Result
}

func newRing(dev gpu.Device, log *slog.Logger, set Settings) *ringRoute {
	return &ringRoute{dev: dev, log: log, set: set, pool: sync.Pool{New: func() any { return new(ringBatch) }}}
}

var ringTexts = [numReasons]*route.Decline{
	hostMemory: decline(route.Ring, "memory", "not device memory: it needs no staging", ""),
}

// Traits needs, for a file, a descriptor that goes through the page cache: unaligned
// ends do. Any other source is read into slots.
func (r *ringRoute) Traits(src Source) (Traits, *route.Decline) {
	t := Traits{ID: route.Ring, Reads: true, Writes: true, Parallel: true, texts: &ringTexts}
	if src.File() == nil {
		return t, nil
	}
	return t, needsBuffered(route.Ring, src)
}

// needsBuffered declines a source that cannot be accessed through the page cache.
func needsBuffered(id route.ID, src Source) *route.Decline {
	if src.File() == nil {
		return decline(id, "source", src.Name()+" is not a local file", "")
	}
	if src.File().Buffered() < 0 {
		return decline(id, "descriptor", src.Name()+" is open with O_DIRECT and cannot be reopened without it", "mount /proc, or open the file without O_DIRECT")
	}
	return nil
}

// needsDirect declines a file that cannot be read with O_DIRECT.
func needsDirect(id route.ID, src Source) *route.Decline {
	f := src.File()
	switch {
	case f.Direct() >= 0:
		return nil
	case f.Facts.Direct.Supported:
		return decline(id, "descriptor", src.Name()+" is open without O_DIRECT and cannot be reopened with it", "mount /proc, or open the file with O_DIRECT")
	}
	return decline(id, "O_DIRECT", src.Name()+": "+f.Facts.Direct.Source, "put the file on a file system with O_DIRECT (ext4, xfs)")
}

// State says whether memory can be pinned.
func (r *ringRoute) State(*Op) State { return State{Learned: r.absent.Load()} }

// open makes the ring. If it cannot be made, the next routes get the requests.
func (r *ringRoute) open() (*ring.Ring, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ring != nil {
		return r.ring, nil
	}
	if d := r.absent.Load(); d != nil {
		return nil, &RejectedError{Why: d}
	}
	var err error
	if r.ring, err = r.make(); err != nil {
		d := decline(route.Ring, "pinned memory", err.Error(), "raise ulimit -l or the container memory limit, then restart")
		r.absent.Store(d)
		return nil, &RejectedError{d, err}
	}
	return r.ring, nil
}

func (r *ringRoute) make() (*ring.Ring, error) {
	return ring.New(r.dev, ring.Config{Logger: r.log, Budget: r.set.Budget, Slot: r.set.Slot, Workers: r.set.Workers, Poll: r.set.Poll})
}

// Configure changes the size of slots and up to which size copies are polled for. A ring
// that exists is replaced by one with other slots. It is closed behind its transfers in
// the background: freeing pinned memory waits for streams, and so perhaps for the caller.
func (r *ringRoute) Configure(set Settings) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.set
	r.set.Slot, r.set.Poll = set.Slot, set.Poll
	switch {
	case r.ring == nil:
		return nil
	case set.Slot == before.Slot:
		r.ring.SetPoll(set.Poll)
		return nil
	}
	next, err := r.make()
	if err != nil {
		r.set = before
		return err
	}
	last := r.ring
	r.ring = next
	r.old.Go(func() { _ = last.Close() }) // its memory is gone with the process at the latest
	return nil
}

// replaced reports whether another ring has taken the place of one.
func (r *ringRoute) replaced(one *ring.Ring) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ring != one
}

// Prepare makes the ring and, for a large transfer, pins its memory.
func (r *ringRoute) Prepare(large bool) {
	if rg, err := r.open(); err == nil && large {
		rg.Prepare()
	}
}

// Run hands the batch to the ring.
func (r *ringRoute) Run(ctx context.Context, ops []Op, res []route.Receipt) error {
	r.calls.Add(1)
	defer r.calls.Add(-1)
	rg, err := r.open()
	if err != nil {
		return err
	}
	b := r.pool.Get().(*ringBatch)
	defer r.pool.Put(b)
	b.set(ops, r.window)
	err = rg.Run(ctx, b.reqs, b.res)
	for errors.Is(err, ring.ErrClosed) && r.replaced(rg) { // it has moved nothing
		if rg, err = r.open(); err == nil {
			err = rg.Run(ctx, b.reqs, b.res)
		}
	}
	for i := range b.res {
		from, to := &b.res[i], &res[i]
		to.Bytes = from.N
		to.Host.Bytes = from.HostBytes
		countWindow(from, to)
		to.Cache = from.Cache
		to.Retries = from.Retries
		ops[i].Turn = from.Turn
	}
	if err != nil && ctx.Err() == nil {
		err = ops[b.failed()].fail(err)
	}
	return err
}

// stage begins a read of the first n bytes of an op. An error means that nothing was done.
func (r *ringRoute) stage(op *Op, n uint64) (ring.Staged, error) {
	rg, err := r.open()
	if err != nil {
		return ring.Staged{}, err
	}
	s, err := rg.Stage(op.file().Buffered(), op.Off, op.Mem.Addr(), int64(n))
	for errors.Is(err, ring.ErrClosed) && r.replaced(rg) {
		if rg, err = r.open(); err == nil {
			s, err = rg.Stage(op.file().Buffered(), op.Off, op.Mem.Addr(), int64(n))
		}
	}
	return s, err
}

// failed is the request whose error is that of the batch.
func (b *ringBatch) failed() int {
	for i := range b.res {
		if b.res[i].Err != nil {
			return i
		}
	}
	return 0
}

func (b *ringBatch) set(ops []Op, window func(*Op) []byte) {
	b.reqs, b.res = b.reqs[:0], b.res[:0]
	for i := range ops {
		op := &ops[i]
		req := ring.Request{
			Write: op.Dir == route.Write, Buffered: -1, Direct: -1,
			Off: op.Off, Addr: op.Mem.Addr(), Len: int64(op.Mem.Len),
		}
		if f := op.file(); f == nil {
			req.Source = op.Src
		} else {
			req.Buffered, req.Align = f.Buffered(), max(f.Facts.Direct.OffAlign, f.Facts.Direct.MemAlign)
			req.Cache = f.Reads()
			// Writes bypass the page cache only if the caller opened the file so.
			if !req.Write || f.CallerDirect() {
				req.Direct = f.Direct()
			}
		}
		if window != nil {
			req.Window = window(op)
		}
		b.reqs = append(b.reqs, req)
		b.res = append(b.res, ring.Result{})
	}
}

// Close unpins the memory.
func (r *ringRoute) Close() error {
	r.old.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ring == nil {
		return nil
	}
	return r.ring.Close()
}
