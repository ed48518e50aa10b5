package tensor

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"
)

// What batches guarantee: each read in one of them, in the order of the plan,
// of one file, large while there is plenty and smaller towards the end.
func TestBatches(t *testing.T) {
	const each, count = 32 << 20, 256
	m, err := Open(sparse(t, each, count))
	if err != nil {
		t.Fatal(err)
	}
	list := func(opts *PlanOptions, window uint64) []*readBatch {
		p := planFor(t, m, Selection{}, []int{0}, opts)
		l := &Load{plan: p, opts: LoadOptions{Window: window}, devices: map[int]*loadDevice{0: {}}}
		var all []*readBatch
		if err := l.batches(t.Context(), 0, func(p *readBatch) error {
			all = append(all, p)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		var n int
		for _, x := range all {
			var bytes int64
			for _, r := range x.reads {
				if r != &p.Reads[n] {
					t.Fatalf("read %d is out of order", n)
				}
				n++
				bytes += r.Size()
			}
			if bytes != x.bytes || x.small() {
				t.Errorf("a batch of %d bytes says %d, small is %v", bytes, x.bytes, x.small())
			}
		}
		if n != len(p.Reads) {
			t.Errorf("%d of %d reads", n, len(p.Reads))
		}
		return all
	}
	whole := list(nil, 0)
	var sizes []int64
	for _, p := range whole {
		sizes = append(sizes, p.bytes>>20)
	}
	// They grow, stay, and shrink.
	most := slices.Index(sizes, slices.Max(sizes))
	if sizes[0] > firstBatch>>20 || sizes[most] < maxBatch>>20*7/8 || sizes[most] > maxBatch>>20 || sizes[len(sizes)-1] > minBatch>>20 ||
		!slices.IsSorted(sizes[:most+1]) || !slices.IsSortedFunc(sizes[most:], func(a, b int64) int { return int(b - a) }) {
		t.Errorf("batches of %v MiB", sizes)
	}
	for _, p := range list(&PlanOptions{ByLayer: true}, 0) {
		if p.bytes > firstBatch {
			t.Errorf("a batch of %d MiB where an early start is wanted", p.bytes>>20)
		}
	}
	for _, p := range list(&PlanOptions{PerTensor: true}, 1<<30) {
		if len(p.reads) != 1 {
			t.Errorf("%d reads wait for room together", len(p.reads))
		}
	}
}

// Slow storage gets small batches.
func TestBatchesOfSlowStorage(t *testing.T) {
	l := &Load{plan: &Plan{}, start: time.Now().Add(-10 * time.Second)}
	for _, tt := range []struct{ moved, want int64 }{{0, maxBatch}, {100 << 20, firstBatch}, {8 << 30, 8 << 30 / 40}, {1 << 40, maxBatch}} {
		l.report.Bytes = tt.moved
		got := l.batchSize(1<<40, 9)
		// The time since then is more than ten seconds by now, if not by much.
		least := int64(float64(tt.want) * 10 / time.Since(l.start).Seconds())
		if got > tt.want || got < least {
			t.Errorf("%d MiB in ten seconds: batches of %d MiB, want %d", tt.moved>>20, got>>20, tt.want>>20)
		}
	}
}

// Early start: by layer the first layer is there before the last half is read.
func TestEarlyStart(t *testing.T) {
	const each, count = 16 << 20, 32
	m, err := Open(sparse(t, each, count))
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var asked int64
	first := make(chan struct{})
	e := hookedEngine{softEngine(t, 1<<30), func(ctx context.Context, segments []segment) error {
		mu.Lock()
		for _, p := range segments {
			asked += int64(p.dst.Len)
		}
		late := asked > each*count/2
		mu.Unlock()
		if late {
			select {
			case <-first:
			case <-ctx.Done():
			}
		}
		return ctx.Err()
	}}
	l, err := newLoad(planFor(t, m, Selection{}, []int{0}, &PlanOptions{ByLayer: true}), e, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	n := 0
	for x, err := range l.Tensors(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			if layer := layerOf(x.Name); layer > 7 {
				t.Errorf("layer %d came first", layer)
			}
			close(first)
		}
		n++
	}
	if n != count {
		t.Errorf("%d tensors", n)
	}
}
