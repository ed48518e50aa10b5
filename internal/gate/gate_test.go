package gate

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

func TestCloseWaitsForUsers(t *testing.T) {
	for range 200 {
		var g Gate
		var inside, after atomic.Int64
		var closed atomic.Bool
		var wg sync.WaitGroup
		start := make(chan struct{})
		for i := range 8 {
			wg.Go(func() {
				<-start
				for range 50 {
					if !g.Enter(uint32(i)) {
						return
					}
					inside.Add(1)
					if closed.Load() {
						after.Add(1)
					}
					inside.Add(-1)
					g.Leave(uint32(i))
				}
			})
		}
		close(start)
		if !g.Close() {
			t.Fatal("the gate was closed already")
		}
		if n := inside.Load(); n != 0 {
			t.Fatalf("Close returned with %d users inside", n)
		}
		closed.Store(true)
		wg.Wait()
		if after.Load() != 0 {
			t.Fatal("somebody was inside after Close had returned")
		}
	}
}

func TestEnterTwice(t *testing.T) {
	var g Gate
	for range 2 {
		if !g.Enter(3) {
			t.Fatal("an open gate turned a user away")
		}
	}
	done := make(chan bool)
	var left atomic.Bool
	go func() {
		ok := g.Close()
		if !left.Load() {
			t.Error("Close returned before the users had left")
		}
		done <- ok
	}()
	for g.Enter(1) {
		g.Leave(1)
	}
	for range 1000 { // time for a Close that does not wait to be found out
		runtime.Gosched()
	}
	g.Leave(3)
	left.Store(true)
	g.Leave(3)
	if !<-done || g.Close() || !g.Closed() {
		t.Error("the first Close closes, the second does not")
	}
}

func TestEnterAllocatesNothing(t *testing.T) {
	var g Gate
	if n := testing.AllocsPerRun(100, func() { g.Enter(0); g.Leave(0) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
