package syncpoint

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

func TestNilPointsHaveNone(t *testing.T) {
	var p *Points
	p.At("anywhere", 0)
	(&Points{}).At("anywhere", 0)
}

func TestGateStopsTheFirst(t *testing.T) {
	var p Points
	g := p.Stop("narrow")
	p.At("elsewhere", 1)
	done := make(chan struct{})
	go func() {
		p.At("narrow", 1)
		close(done)
	}()
	<-g.Arrived()
	p.At("narrow", 2) // only the first is stopped
	select {
	case <-done:
		t.Fatal("the gate let the first pass")
	default:
	}
	g.Open()
	g.Open()
	<-done
}

// twoSteps is three actors that write down in which order they passed.
func twoSteps(t *testing.T, seed uint64) (order []int, trace []string) {
	synctest.Test(t, func(t *testing.T) {
		var p Points
		var mu sync.Mutex
		actor := func(i int) func() {
			return func() {
				for range 2 {
					mu.Lock()
					order = append(order, i)
					mu.Unlock()
					p.At("step", uint64(i))
				}
			}
		}
		var err error
		trace, err = p.Run(seed, synctest.Wait, actor(0), actor(1), actor(2))
		if err != nil {
			t.Error(err)
		}
	})
	return order, trace
}

func TestRunFollowsTheSeed(t *testing.T) {
	seen := map[string]bool{}
	for seed := range uint64(100) {
		order, trace := twoSteps(t, seed)
		again, traceAgain := twoSteps(t, seed)
		if !slices.Equal(order, again) || !slices.Equal(trace, traceAgain) {
			t.Fatalf("seed %d: %v (%v), then %v (%v)", seed, order, trace, again, traceAgain)
		}
		key := ""
		for _, i := range order {
			key += string(rune('0' + i))
		}
		seen[key] = true
	}
	// Two steps of three actors interleave in 6!/(2!2!2!) = 90 ways.
	if len(seen) < 40 {
		t.Errorf("100 seeds gave %d interleavings", len(seen))
	}
}

func TestRunWakesWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Points
		ready := make(chan struct{})
		var got []string
		trace, err := p.Run(1, synctest.Wait, func() {
			<-ready
			p.At("woken", 0)
			got = append(got, "second")
		}, func() {
			got = append(got, "first")
			close(ready)
		})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, []string{"first", "second"}) || len(trace) != 3 {
			t.Errorf("got %v by %v", got, trace)
		}
	})
}

func TestRunFindsDeadlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Points
		a, b := make(chan struct{}), make(chan struct{})
		_, err := p.Run(1, synctest.Wait, func() { <-a }, func() { <-b })
		d, ok := errors.AsType[*Deadlock](err)
		if !ok || d.Stuck != 2 {
			t.Errorf("error is %v, want a deadlock of two", err)
		}
		close(a)
		close(b)
	})
}
