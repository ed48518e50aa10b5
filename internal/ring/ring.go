package ring

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"

	"github.com/culvert-io/culvert/gpu"
)

// A Ring moves bytes between files and the memory of one GPU. It is safe for
// concurrent use.
type Ring struct {
	dev   gpu.Device
	info  gpu.Info
	log   *slog.Logger
	files syscalls
	plain bool // without io_uring

	pool       pinnedPool
	smallSlots smallSlots
	smallLen   int64 // requests up to here run in the caller

	flagOnce sync.Once
	flags    bool // small requests wait for flags

	kernelsOnce sync.Once
	kernels     *coalesceKernels // nil where the kernels do not load

	sizing     sizing
	copying    atomic.Int64 // bytes on their way to or from the GPU, but for requests below hintMin
	readRate   rate
	splitReads adaptive // of cold reads as a whole and in halves
	storeRate  storeRate

	mu        sync.Mutex
	limit     int // lanes that there may be: as planned, or what could be made
	active    []*batch
	idle      []*batch    // to be used again
	free      []*pipeline // the last one given back is the first one taken
	pipelines int         // made or being made
	running   int         // ops
	closed    bool        // for new ops
	stopped   bool        // for helpers, too

	wake        sync.Cond // for helpers
	workers     int
	asleep      int
	woken       int            // of those asleep
	workerGroup sync.WaitGroup // helpers
	drained     sync.Cond      // running is 0
}

// New makes a ring for a GPU. It pins a first lane, so that a machine without
// memory to pin says so here.
func New(dev gpu.Device, cfg Config) (*Ring, error) {
	return newRing(dev, cfg, topology{os.DirFS("/")})
}

func newRing(dev gpu.Device, cfg Config, m topology) (*Ring, error) {
	info := dev.Info()
	p, err := cfg.resolve(info, m)
	if err != nil {
		return nil, err
	}
	r := &Ring{dev: dev, info: info, log: cfg.Logger, files: cfg.files, plain: cfg.plain, sizing: p, limit: p.pipelines}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	if r.files == nil {
		r.files = kernel{}
	} else {
		r.plain = true
	}
	r.pool = pinnedPool{dev: dev, budget: p.budget}
	if near, ok := m.near(info.PCI); ok {
		r.pool.near = &near
	}
	r.smallLen = min(smallLen, p.slot)
	r.smallSlots.limit = p.smallSlots
	r.smallSlots.returned.L = &r.smallSlots.mu
	r.wake.L, r.drained.L = &r.mu, &r.mu
	l, err := r.newPipeline()
	if err != nil {
		return nil, errors.Join(err, r.pool.close())
	}
	r.free, r.pipelines = append(r.free, l), 1
	return r, nil
}

// Pinned is how many bytes of host memory the ring has pinned.
func (r *Ring) Pinned() int64 { return r.pool.size() }

// Run does all requests and fills res, which is as long as reqs. Requests of a
// batch run side by side and in no order, so they must not overlap. The error
// is that of the first request that has one; the others are done nevertheless.
// When ctx is cancelled Run returns as soon as the pieces under way are through.
// After Run nothing touches files or memory any more.
func (r *Ring) Run(ctx context.Context, reqs []Request, res []Result) error {
	if len(res) < len(reqs) {
		return fmt.Errorf("ring: %d requests, but room for %d results", len(reqs), len(res))
	}
	clear(res[:len(reqs)])
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(reqs) == 1 && reqs[0].Len <= r.smallLen {
		if err := r.runSmall(&reqs[0], &res[0]); err != errNoSmallSlots {
			res[0].Err = err
			return err
		}
	}
	return r.runBatch(ctx, reqs, res)
}

func (r *Ring) runBatch(ctx context.Context, reqs []Request, res []Result) error {
	o, err := r.enter()
	if err != nil {
		return err
	}
	o.reset(ctx, reqs, res)
	began := r.chooseSplit(o)
	r.reserve(o)
	if o.left > 0 {
		r.participate(o)
		r.await(o)
	}
	o.finish()
	r.recordSplit(o, began)
	r.unmapFiles(o)
	r.sync(reqs, res)
	r.leave(o)
	for i := range reqs {
		if res[i].Err != nil {
			return res[i].Err
		}
	}
	return nil
}

// attend starts an op and lets the caller work on it, if there is a lane.
func (r *Ring) participate(o *batch) {
	r.mu.Lock()
	l := r.startLocked(o)
	r.mu.Unlock()
	l = r.ensurePipeline(l)
	if l != nil {
		r.drive(l, o)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	o.hasCaller = false
	if l != nil {
		r.releasePipelineLocked(l)
	} else {
		r.wakeWorkersLocked(min(1, len(r.free))) // one may have come back meanwhile
	}
}

// await waits until the op is finished. A cancelled op is finished when its
// pieces under way are.
func (r *Ring) await(o *batch) {
	r.mu.Lock()
	o.waiting = !o.finished()
	wait := o.waiting
	r.mu.Unlock()
	if !wait {
		return
	}
	select {
	case <-o.done:
		return
	case <-o.ctx.Done():
	}
	r.mu.Lock()
	r.cancelLocked(o, o.ctx.Err())
	r.mu.Unlock()
	<-o.done
}

// reserveLen is the size from which a write looks for room first.
const reserveLen = 8 << 20

// reserve lets large writes that extend a file fail before they move anything,
// and sees how those that do not are written best.
func (r *Ring) reserve(o *batch) {
	for i := range o.reqs {
		q := &o.reqs[i]
		if !q.Write || o.prog[i].len < reserveLen {
			continue
		}
		if err := r.files.Reserve(q.Buffered, q.Off, q.Len); err != nil {
			o.fail(i, 0, &Error{"reserve", q.Off, q.Len, q.Addr, err})
			continue
		}
		r.mapFile(q, &o.prog[i])
	}
}

// sync flushes the files of writes that ask for it.
func (r *Ring) sync(reqs []Request, res []Result) {
	last, lastErr := -1, error(nil)
	for i := range reqs {
		q := &reqs[i]
		if !q.Write || !q.Sync || res[i].Err != nil {
			continue
		}
		if q.Buffered != last {
			last, lastErr = q.Buffered, r.files.Fdatasync(q.Buffered)
		}
		if lastErr != nil {
			res[i].Err = &Error{"sync", q.Off, q.Len, q.Addr, lastErr}
		}
	}
}

func (r *Ring) enter() (*batch, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, ErrClosed
	}
	r.running++
	n := len(r.idle)
	if n == 0 {
		return newBatch(min(coalesceLen, r.sizing.slot/4)), nil
	}
	o := r.idle[n-1]
	r.idle = r.idle[:n-1]
	return o, nil
}

func (r *Ring) leave(o *batch) {
	o.release()
	r.mu.Lock()
	r.idle = append(r.idle, o)
	if r.running--; r.running == 0 && r.closed {
		r.drained.Signal()
	}
	r.mu.Unlock()
}

// Close waits for calls of Run and gives everything back.
func (r *Ring) Close() error {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return ErrClosed
	}
	r.closed = true
	for r.running > 0 {
		r.drained.Wait()
	}
	r.stopped = true
	r.wake.Broadcast()
	r.mu.Unlock()
	r.workerGroup.Wait()
	err := r.closeSmallSlots()
	for _, l := range r.free {
		err = errors.Join(err, l.close())
	}
	if r.kernels != nil {
		err = errors.Join(err, r.kernels.module.Close())
	}
	return errors.Join(err, r.pool.close())
}
