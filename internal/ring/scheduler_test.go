package ring

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A cancelled Run comes back after the chunks in flight, and leaves the rest
// of the buffer alone.
func TestCancel(t *testing.T) {
	files := &oddFiles{}
	cfg := smallRing
	cfg.sys = files
	r := openRing(t, openGPU(t), cfg)
	const n = 8 << 20
	f, b := newFile(t, noise(1, n)), newBuffer(t, r.dev, n)
	for _, write := range []bool{false, true} {
		ctx, cancel := context.WithCancel(context.Background())
		var calls, after atomic.Int32
		files.set(func(call) (int, error) {
			if ctx.Err() != nil {
				after.Add(1)
			}
			if calls.Add(1) == 10 {
				cancel()
			}
			return whole, nil
		})
		q := []Request{{Write: write, Buffered: f.buffered, Direct: -1, Addr: b.addr(), Len: n}}
		res := make([]Result, 1)
		err := r.Run(ctx, q, res)
		if !errors.Is(err, context.Canceled) || !errors.Is(res[0].Err, context.Canceled) {
			t.Errorf("write %v: %v, %+v", write, err, res[0])
		}
		// Every pipeline may have one chunk in flight and one about to be taken; a
		// write's copies are flushed.
		if limit := int32(cfg.Workers * (cfg.Depth + 1)); after.Load() > limit {
			t.Errorf("write %v: %d chunks after the cancellation, at most %d", write, after.Load(), limit)
		}
		files.set(nil)
		if !write {
			got := b.bytes(t)
			for i := range got[:res[0].N] {
				if got[i] != f.data[i] {
					t.Fatalf("byte %d is wrong", i)
				}
			}
		}
		if err := r.Run(ctx, q, res); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled before: %v", err)
		}
		cancel()
	}
}

// A caller that has no pipeline and only waits can be cancelled, too.
func TestCancelWaiting(t *testing.T) {
	files := &oddFiles{}
	cfg := smallRing
	cfg.Workers, cfg.sys = 1, files
	r := openRing(t, openGPU(t), cfg)
	const n = 1 << 20
	f, b := newFile(t, noise(1, n)), newBuffer(t, r.dev, n)
	q := Request{Buffered: f.buffered, Direct: -1, Addr: b.addr(), Len: n}
	inside, goOn := make(chan struct{}), make(chan struct{})
	var first atomic.Bool
	files.set(func(call) (int, error) {
		if first.CompareAndSwap(false, true) {
			close(inside)
			<-goOn
		}
		return whole, nil
	})
	holder := make(chan error)
	go func() {
		_, err := run1(r, q)
		holder <- err
	}()
	<-inside // the only pipeline is busy
	ctx, cancel := context.WithCancel(context.Background())
	waiter := make(chan error)
	go func() { waiter <- r.Run(ctx, []Request{q}, make([]Result, 1)) }()
	waitFor(t, r, func() bool { return len(r.sched.active) == 2 })
	cancel()
	if err := <-waiter; !errors.Is(err, context.Canceled) {
		t.Errorf("waiting: %v", err)
	}
	close(goOn)
	if err := <-holder; err != nil {
		t.Errorf("the other caller: %v", err)
	}
}

// waitFor waits until cond, which is asked with the ring's lock held.
func waitFor(t *testing.T, r *Ring, cond func() bool) {
	t.Helper()
	for start := time.Now(); time.Since(start) < 2*time.Minute; time.Sleep(time.Millisecond) {
		r.sched.mu.Lock()
		ok := cond()
		r.sched.mu.Unlock()
		if ok {
			return
		}
	}
	t.Fatal("it never happened")
}

// Callers share the pipelines: a short request does not wait for a long one that
// came first.
func TestFairness(t *testing.T) {
	files := &oddFiles{}
	cfg := smallRing
	cfg.Workers, cfg.sys = 1, files
	r := openRing(t, openGPU(t), cfg)
	const long, short = 8 << 20, 1 << 20
	f, g := newFile(t, noise(1, long)), newFile(t, noise(2, short))
	b := newBuffer(t, r.dev, long)
	inside, goOn := make(chan struct{}), make(chan struct{})
	var longs, shorts, atEnd int // there is one pipeline, so one call at a time
	files.set(func(c call) (int, error) {
		if c.fd == f.buffered {
			if longs++; longs == 3 {
				close(inside)
				<-goOn
			}
		} else if shorts++; shorts == short/cfg.Slot {
			atEnd = longs
		}
		return whole, nil
	})
	done := make(chan error, 2)
	go func() {
		_, err := run1(r, Request{Buffered: f.buffered, Direct: -1, Addr: b.addr(), Len: long})
		done <- err
	}()
	<-inside
	go func() {
		_, err := run1(r, Request{Buffered: g.buffered, Direct: -1, Addr: b.addr(), Len: short})
		done <- err
	}()
	waitFor(t, r, func() bool { return len(r.sched.active) == 2 })
	close(goOn)
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if limit := 3 + short/cfg.Slot + 4; atEnd == 0 || atEnd > limit {
		t.Errorf("the short request was through after %d chunks of the long one, want at most %d", atEnd, limit)
	}
}

// One large request wakes workers until all pipelines are in use.
func TestWorkers(t *testing.T) {
	files := &oddFiles{}
	cfg := smallRing
	cfg.sys = files
	r := openRing(t, openGPU(t), cfg)
	const n = 4 << 20
	f, b := newFile(t, noise(1, n)), newBuffer(t, r.dev, n)
	var inside atomic.Int32
	together := make(chan struct{})
	files.set(func(call) (int, error) {
		if inside.Add(1) == int32(cfg.Workers) {
			close(together)
		}
		<-together // hangs unless as many as there are pipelines come here
		return whole, nil
	})
	if _, err := run1(r, Request{Buffered: f.buffered, Direct: -1, Addr: b.addr(), Len: n}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, r, func() bool { return len(r.sched.free) == cfg.Workers && r.sched.asleep == r.sched.workers })
	if r.sched.workers > cfg.Workers {
		t.Errorf("%d workers for %d pipelines", r.sched.workers, cfg.Workers)
	}
}

// Many callers of all sizes, more than there are pipelines and small slots.
func TestManyCallers(t *testing.T) {
	r := openRing(t, openGPU(t), smallRing)
	f := newFile(t, noise(1, 1<<20))
	const callers = 24
	errs := make(chan error, callers)
	for c := range callers {
		n := []int64{4096, 200_000, 1 << 20}[c%3]
		b := newBuffer(t, r.dev, int(n))
		go func() {
			var err error
			for range 20 {
				if _, err = run1(r, Request{Buffered: f.buffered, Direct: -1, Addr: b.addr(), Len: n}); err != nil {
					break
				}
			}
			errs <- err
		}()
	}
	for range callers {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if r.Pinned() > smallRing.Budget {
		t.Errorf("%d bytes pinned of at most %d", r.Pinned(), smallRing.Budget)
	}
}

// A file lets in one pwrite at a time, so that few workers are called for one.
func TestFewWriters(t *testing.T) {
	cfg := smallRing
	cfg.Workers = 8
	r := openRing(t, openGPU(t), cfg)
	const n = 4 << 20
	f, b := newFile(t, noise(1, n)), newBuffer(t, r.dev, n)
	q := Request{Write: true, Buffered: f.buffered, Direct: -1, Addr: b.addr(), Len: n}
	if _, err := run1(r, q); err != nil || r.sched.workers > pwriteWorkers-1 {
		t.Errorf("%d workers for a write, %v", r.sched.workers, err)
	}
	o := newBatch(0)
	o.reset(context.Background(), []Request{q}, make([]Result, 1))
	r.sched.mu.Lock()
	defer r.sched.mu.Unlock()
	for r.sched.spareWorkersLocked() < cfg.Workers { // a worker of the write is not back yet
		r.sched.mu.Unlock()
		runtime.Gosched()
		r.sched.mu.Lock()
	}
	workers := func() int { return r.sched.extraWorkersLocked(o) }
	for _, tt := range []struct {
		name   string
		change func()
		want   int
	}{
		{"through the page cache", func() {}, pwriteWorkers - 1},
		{"over cached pages", func() { o.prog[0].mapped.mem = []byte{0} }, storeWorkers - 1},
		{"by O_DIRECT", func() { o.reqs[0].Direct = f.buffered }, 8},
		{"a read", func() { o.reqs[0] = Request{Buffered: f.buffered, Direct: -1, Len: n} }, 8},
	} {
		if tt.change(); workers() != tt.want {
			t.Errorf("%s: %d workers, want %d", tt.name, workers(), tt.want)
		}
	}
	o.reqs[0], o.prog[0].mapped = q, fileMapping{}
	r.sched.active = []*batch{o, o}
	if workers() != 0 {
		t.Errorf("%d workers for one of several writes", workers())
	}
	r.sched.active = nil
}

// TestDirectWritesAreWhole: a write of 1 MiB with O_DIRECT is one call of one thread, and
// a longer one is cut into no smaller ones.
func TestDirectWritesAreWhole(t *testing.T) {
	files := &oddFiles{}
	r := openRing(t, openGPU(t), Config{Slot: 1 << 20, Workers: 8, sys: files})
	const most = 4 << 20
	f, b := newFile(t, noise(1, most)), newBuffer(t, r.dev, most)
	if f.direct < 0 {
		t.Skip("needs a directory for temporary files with O_DIRECT")
	}
	b.set(t, noise(2, most))
	for _, n := range []int64{256 << 10, 1 << 20, most} {
		var calls, workers int
		var mu sync.Mutex
		files.set(func(c call) (int, error) {
			if c.verb == "pwrite" && c.fd == f.direct {
				mu.Lock()
				defer mu.Unlock()
				calls++
			}
			return whole, nil
		})
		res, err := run1(r, Request{Write: true, Buffered: f.buffered, Direct: f.direct, Align: f.align, Addr: b.addr(), Len: n})
		if err != nil || res.N != n || res.DirectBytes != n {
			t.Fatalf("%+v, %v", res, err)
		}
		if want := max(int(n>>20), 1); calls != want {
			t.Errorf("%d calls for a write of %d bytes, want %d", calls, n, want)
		}
		r.sched.mu.Lock()
		workers = r.sched.workers
		r.sched.mu.Unlock()
		if n <= 1<<20 && workers > 0 {
			t.Errorf("%d workers for a write of %d bytes", workers, n)
		}
	}
	if !bytes.Equal(f.content(t), noise(2, most)) {
		t.Error("wrong bytes")
	}
}
