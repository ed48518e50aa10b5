package tensor

import (
	"context"
	"sync"
	"testing"
)

// What parcels promise: each read in one of them, in the order of the plan,
// of one file, large while there is plenty and smaller towards the end.
func TestParcels(t *testing.T) {
	const each, count = 32 << 20, 256
	m, err := Open(sparse(t, each, count))
	if err != nil {
		t.Fatal(err)
	}
	list := func(opts *PlanOptions, window uint64) []*parcel {
		p := planFor(t, m, Selection{}, []int{0}, opts)
		l := &Load{plan: p, opts: LoadOptions{Window: window}, devices: map[int]*loadDevice{0: {}}}
		var all []*parcel
		if err := l.parcels(t.Context(), 0, func(p *parcel) error {
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
				t.Errorf("a parcel of %d bytes says %d, small is %v", bytes, x.bytes, x.small())
			}
		}
		if n != len(p.Reads) {
			t.Errorf("%d of %d reads", n, len(p.Reads))
		}
		return all
	}
	whole := list(nil, 0)
	if first, last := whole[0].bytes, whole[len(whole)-1].bytes; first < maxParcel*7/8 || first > maxParcel || last > minParcel {
		t.Errorf("the first parcel has %d MiB, the last %d", first>>20, last>>20)
	}
	for i := range whole[1:] {
		if whole[i+1].bytes > whole[i].bytes {
			t.Errorf("parcel %d is larger than the one before", i+1)
		}
	}
	for _, p := range list(&PlanOptions{Order: ByLayer}, 0) {
		if p.bytes > earlyParcel {
			t.Errorf("a parcel of %d MiB where an early start is wanted", p.bytes>>20)
		}
	}
	for _, p := range list(&PlanOptions{Alloc: PerTensor}, 1<<30) {
		if len(p.reads) != 1 {
			t.Errorf("%d reads wait for room together", len(p.reads))
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
	e := hookedEngine{softEngine(t, 1<<30), func(ctx context.Context, pieces []Piece) error {
		mu.Lock()
		for _, p := range pieces {
			asked += int64(p.Dst.Len)
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
	l, err := NewLoad(planFor(t, m, Selection{}, []int{0}, &PlanOptions{Order: ByLayer}), e, nil)
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
