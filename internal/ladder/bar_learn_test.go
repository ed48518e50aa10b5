package ladder

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/route"
)

// A costModel is what reads from the page cache cost on a GPU: stores through BAR1, and
// a pread with a copy that has to be launched.
type costModel struct {
	barRate, ringRate float64 // bytes per second
	ringStart         time.Duration
}

func (m costModel) cost(id route.ID, n uint64) time.Duration {
	if id == route.Bar {
		return time.Microsecond + time.Duration(float64(n)/m.barRate*1e9)
	}
	return m.ringStart + time.Duration(float64(n)/m.ringRate*1e9)
}

// TestUnknownGPU checks that a GPU with another cost model than those that were measured
// loses at most 10 % by a border that is wrong for it, from the first read on, over a
// thousand reads of any length.
func TestUnknownGPU(t *testing.T) {
	for name, m := range map[string]costModel{
		"H200":                 {barRate: 6e9, ringRate: 5e9, ringStart: 8 * time.Microsecond},
		"slow BAR1":            {barRate: 1.5e9, ringRate: 5e9, ringStart: 8 * time.Microsecond},
		"very slow BAR1":       {barRate: 0.8e9, ringRate: 4e9, ringStart: 10 * time.Microsecond},
		"slow copies":          {barRate: 5e9, ringRate: 2e9, ringStart: 20 * time.Microsecond},
		"launches are slow":    {barRate: 3e9, ringRate: 6e9, ringStart: 60 * time.Microsecond},
		"a border at 512 KiB":  {barRate: 4e9, ringRate: 6e9, ringStart: 40 * time.Microsecond},
		"no difference at all": {barRate: 5e9, ringRate: 5e9, ringStart: time.Microsecond},
	} {
		for _, n := range []uint64{64 << 10, 100 << 10, 128 << 10, 200 << 10, 256 << 10, 300 << 10, 512 << 10, 1 << 20} {
			t.Run(fmt.Sprintf("%s, %d KiB", name, n>>10), func(t *testing.T) {
				l := newBarLearner()
				best := min(m.cost(route.Bar, n), m.cost(route.Ring, n))
				var took time.Duration
				for range 1000 {
					c := l.class(n)
					id, record := c.pick(n)
					cost := m.cost(id, n)
					if took += cost; record {
						(&lesson{c, n}).end(id, int64(n), cost)
					}
				}
				if loss := float64(took)/float64(1000*best) - 1; loss > 0.10 {
					t.Errorf("%.0f %% slower than the better route", loss*100)
				}
			})
		}
	}
}

// A pricedRoute moves bytes, and takes the time that a cost model says.
type pricedRoute struct {
	Route
	id    route.ID
	model costModel
	clock *time.Duration
}

func (r *pricedRoute) Run(ctx context.Context, ops []Op, res []route.Receipt) error {
	for i := range ops {
		*r.clock += r.model.cost(r.id, ops[i].Mem.Len)
	}
	return r.Route.Run(ctx, ops, res)
}

// TestUnknownGPUMoves is TestUnknownGPU with reads of a software GPU by all of the ladder:
// what it chooses, runs and records, with the time of the cost model.
func TestUnknownGPUMoves(t *testing.T) {
	t.Setenv(nvfsSwitch, "0")
	userCache(t)
	const reads = 1000
	for name, m := range map[string]costModel{
		"slow BAR1":   {barRate: 1.5e9, ringRate: 5e9, ringStart: 8 * time.Microsecond},
		"slow copies": {barRate: 5e9, ringRate: 2e9, ringStart: 20 * time.Microsecond},
	} {
		for _, n := range []uint64{128 << 10, 512 << 10} {
			t.Run(fmt.Sprintf("%s, %d KiB", name, n>>10), func(t *testing.T) {
				var clock time.Duration
				now = func() time.Duration { return clock }
				defer func() { now = Now }()
				w := newFixture(t)
				w.ladder.Plan(w.src).keep(route.Bar).routes[0].(*barRoute).learn = newBarLearner()
				p := w.ladder.Plan(w.src)
				for i := range p.routes {
					p.routes[i] = &pricedRoute{p.routes[i], p.traits[i].ID, m, &clock}
				}
				by := map[route.ID]int{}
				for range reads {
					r := w.run(t, p, n)
					by[r.Route]++
				}
				best := min(m.cost(route.Bar, n), m.cost(route.Ring, n))
				if loss := float64(clock)/float64(reads*best) - 1; loss > 0.10 || by[route.Bar]+by[route.Ring] != reads || by[route.Bar] == 0 || by[route.Ring] == 0 {
					t.Errorf("%.0f %% slower than the better route; reads by route: %v", loss*100, by)
				}
			})
		}
	}
}

// TestLearnerLeavesOthersAlone checks what is not learned: lengths at which one route is
// always faster, reads that ended early, and other routes.
func TestLearnerLeavesOthersAlone(t *testing.T) {
	l := newBarLearner()
	for _, n := range []uint64{0, 1, 4096, barLimit.From - 1, crossoverHigh + 1, 1 << 30} {
		if l.class(n) != nil {
			t.Errorf("%d bytes have a class", n)
		}
	}
	if (*barLearner)(nil).class(128<<10) != nil {
		t.Error("a GPU with a known crossover learns")
	}
	const n = 128 << 10
	c := l.class(n)
	c.record(route.Bar, n, time.Millisecond)
	short := lesson{c, n}
	short.end(route.Ring, n-1, time.Nanosecond)
	short.end(route.Host, n, time.Nanosecond)
	(&lesson{}).end(route.Ring, n, time.Nanosecond)
	if c.choice.Faster() != 0 {
		t.Error("learned from a short read, another route or nothing")
	}
	short.end(route.Ring, n, time.Nanosecond)
	if c.choice.Faster() == 0 {
		t.Error("did not learn from a whole read")
	}
}

// TestLearnedRoute runs reads on a GPU that nobody knows: the ladder asks the learner,
// the receipt says why BAR1 was not used, and times are recorded.
func TestLearnedRoute(t *testing.T) {
	t.Setenv(nvfsSwitch, "0")
	userCache(t)
	w := newFixture(t)
	p := w.ladder.Plan(w.src)
	bar := p.keep(route.Bar).routes[0].(*barRoute)
	bar.learn = newBarLearner()
	const n = 200 << 10
	p = w.ladder.Plan(w.src)
	c := bar.learn.class(n)
	c.record(route.Bar, n, time.Hour)
	if r := w.run(t, p, n); r.Route != route.Bar {
		t.Errorf("nothing to compare: %v", &r)
	}
	for range 100 {
		c.record(route.Ring, n, time.Nanosecond)
	}
	if r := w.run(t, p, n); r.Route != route.Ring || r.Declined[route.Bar] != ringIsFaster {
		t.Errorf("the ring is faster: %v", &r)
	}
	if r := w.run(t, p, 4096); r.Route != route.Bar {
		t.Errorf("a small read: %v", &r)
	}
}

func TestUnknownCrossover(t *testing.T) {
	for name, want := range map[string]bool{"NVIDIA H200": false, "NVIDIA H200 (software)": false, "NVIDIA L4": true, "": true} {
		if got := unknownCrossover(gpu.Info{Name: name}); got != want {
			t.Errorf("%q: %v, want %v", name, got, want)
		}
	}
}
