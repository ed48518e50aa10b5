package ring

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/culvert-io/culvert/gpu"
)

// A Ring moves data between files and the memory of one GPU. It is safe for
// concurrent use.
type Ring struct {
	dev     gpu.Device
	log     *slog.Logger
	sizing  sizing
	noUring bool

	pool      pinnedPool
	files     fileIO
	small     smallSlots
	staged    smallSlots // for Stage
	sched     scheduler
	coalescer coalescer
	split     splitReads
	poll      poller
	copies    copyQueue   // last, with windows, apart from what all threads read:
	windows   windowReads // they all write these
}

// New makes a ring for a GPU. It pins the slots of one pipeline and fails if that is
// not possible; the others are pinned when they are needed.
func New(dev gpu.Device, cfg Config) (*Ring, error) {
	return newRing(dev, cfg, topology{os.DirFS("/")})
}

func newRing(dev gpu.Device, cfg Config, t topology) (*Ring, error) {
	info := dev.Info()
	size, err := cfg.resolve(t.link(info.PCI))
	if err != nil {
		return nil, err
	}
	log := cfg.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	sys := cfg.sys
	if sys == nil {
		sys = kernel{}
	}
	r := &Ring{dev: dev, log: log, sizing: size, noUring: cfg.noUring || cfg.sys != nil}
	r.pool = pinnedPool{dev: dev, near: t.near(info.PCI), budget: size.budget}
	r.files = fileIO{sys: sys, slot: size.slot}
	r.files.mapped.init(sys, size, log)
	r.files.mappedReads.init(sys, log)
	r.small.init(r, min(smallLen, size.slot), size.smallSlots)
	r.staged.staging = true
	r.staged.init(r, StageMax, size.stageSlots)
	r.poll.upTo.Store(cfg.Poll)
	r.poll.off.Store(r.noUring)
	r.sched.init(r)
	r.split.log = log
	r.coalescer = coalescer{dev: dev, log: log, device: info.Index}
	if err := r.sched.addFirst(); err != nil {
		return nil, errors.Join(err, r.pool.close())
	}
	return r, nil
}

// Prepare makes the pipelines that a large transfer uses, in the background, so that
// the first one need not wait for each of them.
func (r *Ring) Prepare() { r.sched.prepare() }

// SetPoll changes Config.Poll.
func (r *Ring) SetPoll(n int64) { r.poll.upTo.Store(n) }

// Polls is how many completions have been polled for because of Config.Poll.
func (r *Ring) Polls() int64 {
	c := &r.poll.polls
	return c.flags.Load() + c.reads.Load() + c.events.Load()
}

// Pinned is how many bytes of host memory the ring has pinned.
func (r *Ring) Pinned() int64 { return r.pool.size() }

// Run runs a batch of requests concurrently and fills res, which must be as long as
// reqs. The requests run in no order, so they must not overlap. The error is that
// of the first request that failed; the others run nevertheless. If ctx is
// cancelled, Run returns when the chunks in flight are done. After Run nothing
// accesses the memory, and the files only what is read ahead of a stream: see
// [storage.Stream.Wait].
func (r *Ring) Run(ctx context.Context, reqs []Request, res []Result) error {
	if len(res) < len(reqs) {
		return fmt.Errorf("ring: %d requests but only %d results", len(reqs), len(res))
	}
	clear(res[:len(reqs)])
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(reqs) == 1 && reqs[0].Len <= r.small.maxLen {
		if err := r.small.run(&reqs[0], &res[0]); err != errNoSmallSlots {
			res[0].Err = err
			return err
		}
	}
	return r.runBatch(ctx, reqs, res)
}

func (r *Ring) runBatch(ctx context.Context, reqs []Request, res []Result) error {
	b, err := r.sched.enter()
	if err != nil {
		return err
	}
	b.reset(ctx, reqs, res)
	b.oneChunk = r.files.singleColdRead(reqs)
	r.split.choose(b)
	r.files.prepareWrites(b)
	if b.left > 0 {
		r.sched.run(b)
	}
	b.finish()
	r.split.record(b)
	r.files.mapped.unmap(b)
	r.sched.leave(b)
	for i := range reqs {
		if res[i].Err != nil {
			return res[i].Err
		}
	}
	return nil
}

// Close waits for running calls of Run, then frees all pinned memory. A second Close
// returns ErrClosed.
func (r *Ring) Close() error {
	if err := r.sched.stop(); err != nil {
		return err
	}
	err := errors.Join(r.small.close(), r.staged.close(), r.sched.closePipelines(), r.coalescer.close())
	return errors.Join(err, r.pool.close())
}
