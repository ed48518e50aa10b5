package nvfs

import (
	"slices"
	"testing"
	"testing/synctest"

	abi "github.com/culvert-io/culvert/internal/abi/nvfs"
	"github.com/culvert-io/culvert/soft/internal/shared"
)

// edges are the moves of the state that the module knows, by what causes them.
var edges = map[string][][2]abi.State{
	"begin": {
		{abi.IO_READY, abi.IO_IN_PROGRESS},
		{abi.IO_IN_PROGRESS, abi.IO_CALLBACK_END}, // a second transfer
		{abi.IO_CALLBACK_REQ, abi.IO_CALLBACK_END},
	},
	"end": {
		{abi.IO_IN_PROGRESS, abi.IO_READY},
		{abi.IO_TERMINATE_REQ, abi.IO_TERMINATED},
		{abi.IO_CALLBACK_REQ, abi.IO_CALLBACK_END},
	},
	"munmap": {
		{abi.IO_READY, abi.IO_TERMINATED},
		{abi.IO_IN_PROGRESS, abi.IO_TERMINATE_REQ},
	},
	"callback": {
		{abi.IO_READY, abi.IO_CALLBACK_END},
		{abi.IO_IN_PROGRESS, abi.IO_CALLBACK_REQ},
		{abi.IO_TERMINATE_REQ, abi.IO_CALLBACK_REQ},
	},
}

// A life is an mgroup that was MAPped, and what became of it.
type life struct {
	t        *testing.T
	g        *mgroup
	order    []string
	running  int
	returned chan struct{} // by the callback
}

// do causes one event, if it can happen now.
func (l *life) do(event string) {
	before := l.state()
	switch event {
	case "begin":
		if !l.g.hold(1) {
			return
		}
		if l.g.begin() {
			l.running++
		} else {
			l.g.mu.Lock()
			l.g.drop()
		}
	case "end":
		if l.running == 0 {
			return
		}
		l.running--
		l.g.end()
	case "munmap":
		l.g.unmapped()
	case "callback":
		l.returned = make(chan struct{})
		go func() {
			l.g.freed(nil, nil)
			close(l.returned)
		}()
	}
	synctest.Wait()
	after := l.state()
	move := [2]abi.State{before, after}
	if before != after && after != abi.IO_UNPIN_PAGES_ALREADY_INVOKED && !slices.Contains(edges[event], move) {
		l.t.Errorf("%v: %s moves the state from %d to %d", l.order, event, before, after)
	}
	if l.returned != nil && l.running > 0 && closed(l.returned) {
		l.t.Errorf("%v: the callback returned under a transfer", l.order)
	}
}

func (l *life) state() abi.State {
	l.g.mu.Lock()
	defer l.g.mu.Unlock()
	return l.g.state
}

func closed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// permutations calls fn with every order of the events.
func permutations(events []string, fn func(order []string)) {
	var walk func(done, left []string)
	walk = func(done, left []string) {
		if len(left) == 0 {
			fn(slices.Clone(done))
			return
		}
		tried := map[string]bool{}
		for i, e := range left {
			if !tried[e] {
				tried[e] = true
				walk(append(slices.Clone(done), e), append(slices.Clone(left[:i]), left[i+1:]...))
			}
		}
	}
	walk(nil, events)
}

// Invariants A: in every order of two transfers, their ends, munmap and the free
// callback the state follows the module's edges, the callback waits for the
// transfer, munmap waits for nobody, and the mgroup is freed exactly once.
func TestStateFollowsItsEdgesInEveryOrder(t *testing.T) {
	orders := 0
	permutations([]string{"begin", "begin", "end", "end", "munmap", "callback"}, func(order []string) {
		orders++
		synctest.Test(t, func(t *testing.T) { live(t, order) })
	})
	if orders != 180 {
		t.Errorf("%d orders, want 180", orders)
	}
}

func live(t *testing.T, order []string) {
	m := &Module{groups: map[uint64]*mgroup{}}
	mem, user, err := newShadow(abi.BLOCK_SIZE)
	if err != nil {
		t.Fatal(err)
	}
	if err := shared.Unmap(user); err != nil {
		t.Fatal(err)
	}
	g := newMgroup(m, mem)
	m.groups[g.base] = g
	g.state, g.cpuBase, g.mapped = abi.IO_READY, 1, 1 // as MAP leaves it
	g.pin, g.refs = true, 2
	l := &life{t: t, g: g, order: order}
	for _, e := range order {
		l.do(e)
	}
	for l.running > 0 {
		l.do("end")
	}
	synctest.Wait()
	if !closed(l.returned) || g.refs != 0 || len(m.groups) != 0 || l.state() != abi.IO_UNPIN_PAGES_ALREADY_INVOKED {
		t.Errorf("%v: callback returned: %v, %d references, %d mgroups, %v", order, closed(l.returned), g.refs, len(m.groups), l.state())
	}
}
