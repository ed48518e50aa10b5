//go:build linux && (amd64 || arm64) && !nodl

package dl

import (
	"runtime"
	"sync"
	"testing"
)

func TestChain(t *testing.T) {
	step := sym(t, callee(t), "callee_step")
	for _, c := range []struct {
		results []int32
		want    int32
		at      int
		log     uint64
	}{
		{nil, 0, 0, 0},
		{[]int32{0}, 0, 1, 1234},
		{[]int32{0, 0, 0, 0}, 0, 4, 1234_2234_3234_4234},
		{[]int32{0, -7, 0}, -7, 1, 1234_2234},
		{[]int32{201, 0}, 201, 0, 1234},
	} {
		log := new([2]uint64)
		var steps []Step
		for i, r := range c.results {
			steps = append(steps, Step{step, [6]uintptr{Ref(log), uintptr(i + 1), 2, 3, 4, uintptr(uint32(r))}})
		}
		got, at := Chain(steps...)
		if got != c.want || at != c.at || log[0] != c.log {
			t.Errorf("%v: result %d at %d, log %d; want %d at %d, log %d", c.results, got, at, log[0], c.want, c.at, c.log)
		}
		if log[1] != 0 {
			t.Errorf("%v: the stack was not aligned", c.results)
		}
		runtime.KeepAlive(log)
	}
}

func TestChainFromManyGoroutines(t *testing.T) {
	step := sym(t, callee(t), "callee_step")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			log := new([2]uint64)
			s := Step{step, [6]uintptr{Ref(log), 0, 0, 0, 1, 0}}
			for i := range 1000 {
				if r, at := Chain(s, s); r != 0 || at != 2 {
					t.Errorf("result %d at %d", r, at)
					return
				}
				if i%100 == 0 {
					runtime.GC()
				}
			}
			if log[1] != 0 {
				t.Error("the stack was not aligned")
			}
		})
	}
	wg.Wait()
}

func TestChainDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("needs a build without the race detector")
	}
	step := sym(t, callee(t), "callee_step")
	log := new([2]uint64)
	s := Step{step, [6]uintptr{Ref(log)}}
	if n := testing.AllocsPerRun(1000, func() { Chain(s, s) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	runtime.KeepAlive(log)
}

func BenchmarkTwoCalls(b *testing.B) {
	f := sym(b, callee(b), "callee_keep_errno")
	for b.Loop() {
		f.Call()
		f.Call()
	}
}

func BenchmarkChainOfTwo(b *testing.B) {
	step := sym(b, callee(b), "callee_step")
	log := new([2]uint64)
	s := Step{step, [6]uintptr{Ref(log)}}
	for b.Loop() {
		Chain(s, s)
	}
	runtime.KeepAlive(log)
}
