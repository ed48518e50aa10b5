package route

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/ring"
	"github.com/culvert-io/culvert/internal/storage"
)

// A RingRoute stages through pinned memory that is allocated once and lent.
type RingRoute struct {
	dev  gpu.Device
	pool sync.Pool // of *ringBatch

	mu   sync.Mutex
	ring *ring.Ring // made at first use: a process that only looks pins nothing
	// absent says that there is no memory to pin.
	absent atomic.Pointer[Decline]
}

// A ringBatch is the arguments of one call, reused.
type ringBatch struct {
	reqs []ring.Request
	res  []ring.Result
}

// NewRing returns the ring route to a GPU.
func NewRing(dev gpu.Device) *RingRoute {
	return &RingRoute{dev: dev, pool: sync.Pool{New: func() any { return new(ringBatch) }}}
}

// ID is Ring.
func (r *RingRoute) ID() ID { return Ring }

// Probe wants a descriptor that goes through the page cache, for ragged ends.
func (r *RingRoute) Probe(f *storage.File) Verdict {
	if f.Buffered() < 0 {
		return &Decline{Ring, "descriptor", f.Name + " has O_DIRECT and cannot be opened again without", "mount /proc, or open the file without O_DIRECT"}
	}
	return nil
}

var ringDecline = &Decline{Ring, "memory", "not device memory: it needs no staging", ""}

// Takes takes device memory.
func (r *RingRoute) Takes(op *Op) *Decline {
	if !op.Kind.OnDevice() {
		return ringDecline
	}
	return r.absent.Load()
}

// open makes the ring. Where it cannot be made, the rungs below do without.
func (r *RingRoute) open() (*ring.Ring, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ring != nil {
		return r.ring, nil
	}
	if d := r.absent.Load(); d != nil {
		return nil, &Refusal{Why: d}
	}
	var err error
	if r.ring, err = ring.New(r.dev, ring.Config{}); err != nil {
		d := &Decline{Ring, "pinned memory", err.Error(), "give the process more memory (ulimit -l, the limit of the container) and start it again"}
		r.absent.Store(d)
		return nil, &Refusal{d, err}
	}
	return r.ring, nil
}

// Run hands the batch to the ring.
func (r *RingRoute) Run(ctx context.Context, ops []Op, res []Receipt) error {
	rg, err := r.open()
	if err != nil {
		return err
	}
	b := r.pool.Get().(*ringBatch)
	defer r.pool.Put(b)
	b.set(ops)
	err = rg.Run(ctx, b.reqs, b.res)
	for i := range b.res {
		from, to := &b.res[i], &res[i]
		to.Bytes = from.N
		to.Host.Bytes = from.HostBytes
		to.Retries = from.Retries
	}
	if err != nil && ctx.Err() == nil {
		op := &ops[b.failed()]
		err = op.fail(err)
	}
	return err
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

func (b *ringBatch) set(ops []Op) {
	b.reqs, b.res = b.reqs[:0], b.res[:0]
	for i := range ops {
		op := &ops[i]
		req := ring.Request{
			Write:    op.Dir == Write,
			Buffered: op.File.Buffered(),
			Direct:   op.File.Direct(),
			Align:    max(op.File.Facts.Direct.OffAlign, op.File.Facts.Direct.MemAlign),
			Off:      op.Off,
			Addr:     op.Mem.Addr(),
			Len:      int64(op.Mem.Len),
		}
		// A write goes past the page cache only if the caller said so.
		if req.Write && !op.File.CallerDirect() {
			req.Direct = -1
		}
		b.reqs = append(b.reqs, req)
		b.res = append(b.res, ring.Result{})
	}
}

// Close unpins the memory.
func (r *RingRoute) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ring == nil {
		return nil
	}
	return r.ring.Close()
}
