package route

import (
	"context"
	"errors"
	"testing"

	"github.com/culvert-io/culvert/gpu"
)

// mixed is the plan's bar rung with the ring beside it.
func (w *world) mixed(t *testing.T) *barUpTo {
	t.Helper()
	for _, r := range w.ladder.Plan(w.file).usable {
		if b, ok := r.(*barUpTo); ok {
			return b
		}
	}
	t.Fatal("there is no bar with a ring beside it")
	return nil
}

// When BAR1 is full larger reads go by the ring, and say why; small ones do not.
func TestCrowd(t *testing.T) {
	w := newWorld(t)
	b := w.mixed(t)
	run := func(n uint64) Receipt {
		t.Helper()
		res := make([]Receipt, 1)
		if err := b.Run(context.Background(), []Op{w.op(n)}, res); err != nil || res[0].Bytes != int64(n) {
			t.Fatalf("%v, %v", &res[0], err)
		}
		return res[0]
	}
	if r := run(crowdLen); r.By[Ring] != 0 || r.Declined[Bar] != nil {
		t.Errorf("alone: %v", &r)
	}
	for range crowdMax {
		if !b.crowd.enter() {
			t.Fatal("no place")
		}
	}
	if r := run(crowdLen); r.By[Ring] != crowdLen || r.Declined[Bar] != barDeclineBusy {
		t.Errorf("in a crowd: %v", &r)
	}
	if r := run(crowdLen - 1); r.By[Ring] != 0 {
		t.Errorf("a small one: %v", &r)
	}
	b.crowd.leave()
	if r := run(crowdLen); r.By[Ring] != 0 {
		t.Errorf("when a place is free again: %v", &r)
	}
	if got := b.crowd.n.Load(); got != crowdMax-1 {
		t.Errorf("%d places are taken, want %d", got, crowdMax-1)
	}
}

// A batch that several threads could share is the ring's.
func TestLargeBatch(t *testing.T) {
	w := newWorld(t)
	b := w.mixed(t)
	for _, n := range []int{2, 10} {
		ops, res := make([]Op, n), make([]Receipt, n)
		for i := range ops {
			ops[i] = w.op(128 << 10)
		}
		if err := b.Run(context.Background(), ops, res); err != nil {
			t.Fatal(err)
		}
		for i := range res {
			if ring := res[i].By[Ring] > 0; ring != (n == 10) || res[i].Bytes != 128<<10 {
				t.Errorf("%d reads: %v", n, &res[i])
			}
		}
	}
}

// freed is a buffer that is gone.
type freed struct{ always }

func (freed) Live(gpu.Span) error { return ErrFreed }

// What goes beside BAR1 writes to addresses, so they are looked at.
func TestBesideWantsLiveMemory(t *testing.T) {
	w := newWorld(t)
	b := w.mixed(t)
	for range crowdMax {
		b.crowd.enter()
	}
	op := w.op(crowdLen)
	op.Buf = freed{}
	res := make([]Receipt, 1)
	if err := b.Run(context.Background(), []Op{op}, res); !errors.Is(err, ErrFreed) || res[0].Bytes != 0 {
		t.Errorf("%v, %v", &res[0], err)
	}
}
