package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/limit"
	"github.com/culvert-io/culvert/route"
)

// A run is one workload on one file by one engine.
type run struct {
	w    Workload
	e    *engine
	size int64       // of the file, or of several together, in whole blocks
	dev  gpu.Device  // whose memory is used
	file io.ReaderAt // with the offsets of the callers

	rate *limit.Rate

	next [2]atomic.Int64 // by direction: sequential callers take turns on the file
	done atomic.Int64    // bytes
	stop atomic.Bool
}

// A threadResult is the result of one caller.
type threadResult struct {
	by          [2]tally // by direction
	ops         int64
	first, last time.Duration
	mem         gpu.Span
	offs        []int64 // of the last call
	heat        *heat   // nil unless asked for
}

// A tally counts the calls of one direction. hist is nil if there were none.
type tally struct {
	sum  route.Receipt
	hist *hdrhistogram.Histogram
	ops  int64
}

func (t *tally) add(took time.Duration, ops int) {
	if t.hist == nil {
		t.hist = newHistogram()
	}
	t.hist.RecordValue(int64(took))
	t.ops += int64(ops)
}

// The histogram keeps three digits from 100 ns to ten minutes.
func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(100, int64(10*time.Minute), 3)
}

func (r *run) do(ctx context.Context) (*Result, error) {
	threads := make([]threadResult, r.w.Threads)
	callers := make([]*caller, r.w.Threads)
	g, ctx := errgroup.WithContext(ctx)
	limited, end := context.WithCancel(ctx) // ends with the time of the run, too
	defer end()
	ready, start, over := make(chan error, r.w.Threads), make(chan struct{}), make(chan struct{})
	var working sync.WaitGroup
	abandoned := false // set before start is closed
	working.Add(r.w.Threads)
	for i := range threads {
		g.Go(func() error {
			free, err := r.prepare(ctx, &callers[i], &threads[i])
			ready <- err
			if err != nil {
				working.Done()
				return err
			}
			defer free()
			<-start
			if !abandoned {
				err = r.loop(ctx, limited, callers[i], &threads[i], i)
			}
			working.Done()
			<-over // comparing and freeing memory are not measured
			if err == nil && r.w.Verify {
				err = r.verify(&threads[i])
			}
			return err
		})
	}
	var errs error
	for range threads {
		errs = errors.Join(errs, <-ready)
	}
	if errs != nil {
		abandoned = true
		close(start)
		close(over)
		g.Wait()
		return nil, errs
	}
	before, began := cpuTime(), time.Now()
	if r.w.Time > 0 {
		timer := time.AfterFunc(r.w.Time, func() { r.stop.Store(true); end() })
		defer timer.Stop()
	}
	close(start)
	working.Wait()
	took, cpu := time.Since(began), cpuTime()-before
	close(over)
	err := g.Wait()
	return newResult(r, threads, took, cpu), err
}

// prepare allocates memory for a caller, on its own thread. Unless the run is cold,
// it makes one unmeasured call: allocations that are kept are not measured.
func (r *run) prepare(ctx context.Context, c **caller, t *threadResult) (free func(), err error) {
	n := uint64(r.w.Block) * uint64(r.w.Batch)
	addr, err := r.dev.Alloc(r.w.Kind, n, 0)
	if err != nil {
		return nil, err
	}
	t.mem = gpu.Span{Dev: r.dev.Info().Index, Base: addr, Len: n}
	if r.w.Verify && r.w.Pattern.Writes() {
		err = r.fill(t.mem)
	}
	if err == nil {
		*c, err = r.e.caller(t.mem)
	}
	if err != nil {
		return nil, errors.Join(err, r.dev.Free(addr))
	}
	free = func() { (*c).close(); r.dev.Free(addr) }
	if r.w.Cold {
		return free, nil
	}
	for _, dir := range r.dirs() {
		if err := (*c).do(ctx, dir, make([]int64, r.w.Batch), r.w.Block, new(route.Receipt)); err != nil {
			free()
			return nil, err
		}
	}
	return free, nil
}

func (r *run) dirs() []route.Dir {
	switch {
	case r.w.Pattern.Mixed():
		return []route.Dir{route.Read, route.Write}
	case r.w.Pattern.Writes():
		return []route.Dir{route.Write}
	}
	return []route.Dir{route.Read}
}

// loop makes the calls of one caller. It waits for the limit until limited ends.
func (r *run) loop(ctx, limited context.Context, c *caller, t *threadResult, number int) error {
	rng, mix := rand.New(rand.NewPCG(uint64(number), 1)), r.w.mix(number)
	offs, spare := make([]int64, r.w.Batch), make([]int64, r.w.Batch)
	if r.w.Heat {
		t.heat = newHeat()
	}
	began := time.Now()
	var prev time.Duration
	for t.ops == 0 || !r.stop.Load() { // at least one call, even on a busy machine
		dir := mix.next()
		if !r.offsets(dir, offs, rng) {
			break
		}
		if r.rate != nil {
			if err := r.rate.Wait(limited, int64(len(offs))*r.w.Block); r.stop.Load() && err != nil {
				break
			} else if err != nil {
				return err
			}
			prev = time.Since(began) // latency is that of the call alone
		}
		by := &t.by[dir]
		if err := c.do(ctx, dir, offs, r.w.Block, &by.sum); err != nil {
			return err
		}
		now := time.Since(began) // reads one clock; time.Now reads two
		by.add(now-prev, len(offs))
		if t.heat != nil {
			t.heat.add(now, now-prev)
		}
		if t.ops == 0 {
			t.first = now
		}
		t.last = now
		t.ops += int64(len(offs))
		prev = now
		t.offs, offs, spare = offs, spare, offs
	}
	return ctx.Err()
}

// offsets chooses the next blocks; false means that the run has moved enough.
func (r *run) offsets(dir route.Dir, offs []int64, rng *rand.Rand) bool {
	blocks := r.size / r.w.Block
	for i := range offs {
		if r.w.Pattern.random() {
			offs[i] = rng.Int64N(blocks) * r.w.Block
			continue
		}
		n := r.next[dir].Add(1) - 1
		if r.w.Cold && n >= blocks {
			return false // a second pass would be warm
		}
		offs[i] = n % blocks * r.w.Block
	}
	if r.w.Bytes > 0 && r.done.Add(int64(len(offs))*r.w.Block) > r.w.Bytes {
		return false
	}
	return true
}

func cpuTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// PinnedCopyRate measures a large copy between pinned and GPU memory, in bytes per
// second. No route through host memory can be faster. It takes at most half of the free
// memory of the GPU.
func PinnedCopyRate(dev gpu.Device, write bool) (float64, error) {
	free, _, err := dev.MemInfo()
	if err != nil {
		return 0, fmt.Errorf("measure the pinned-copy rate: %w", err)
	}
	n := min(256<<20, free/2)
	host, err := dev.Alloc(gpu.KindHost, n, 0)
	if err != nil {
		return 0, fmt.Errorf("measure the pinned-copy rate: %w", err)
	}
	defer dev.Free(host)
	mem, err := dev.Alloc(gpu.KindDevice, n, 0)
	if err != nil {
		return 0, fmt.Errorf("measure the pinned-copy rate: %w", err)
	}
	defer dev.Free(mem)
	clear(gpu.HostBytes(host, n))
	dst, src := mem, host
	if write {
		dst, src = host, mem
	}
	best := time.Duration(0)
	for i := range 6 {
		start := time.Now()
		if err := dev.Copy(dst, src, n); err != nil {
			return 0, err
		}
		if took := time.Since(start); i > 0 && (best == 0 || took < best) {
			best = took
		}
	}
	return float64(n) / best.Seconds(), nil
}
