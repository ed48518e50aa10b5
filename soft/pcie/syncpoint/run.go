package syncpoint

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
)

// A waiter is a goroutine at a point.
type waiter struct {
	name string
	id   uint64
	seq  int // order of arrival
	goOn chan struct{}
}

// A schedule collects waiters and releases them one at a time.
type schedule struct {
	prefix  string // of the points at which they stop
	mu      sync.Mutex
	waiting []*waiter
	arrived int
	running int // actors that have not finished
}

func (s *schedule) at(name string, id uint64) {
	if name != start && !strings.HasPrefix(name, s.prefix) {
		return
	}
	w := &waiter{name: name, id: id, goOn: make(chan struct{})}
	s.mu.Lock()
	s.arrived++
	w.seq = s.arrived
	s.waiting = append(s.waiting, w)
	s.mu.Unlock()
	<-w.goOn
}

// A Deadlock tells that actors wait for each other, and what they did before.
type Deadlock struct {
	Stuck int
	Trace []string
}

func (d *Deadlock) Error() string {
	return fmt.Sprintf("%d actors wait for each other after: %s", d.Stuck, strings.Join(d.Trace, ", "))
}

// Run runs the actors, each in its own goroutine, one at a time: the others wait at
// points or for each other, and the seed chooses the next. It returns the points in
// the order in which they were passed; equal seeds and actors give equal orders.
// After a [Deadlock] the goroutines stay where they are.
//
// settle must return when all other goroutines are blocked: it is
// testing/synctest.Wait, and Run must be called in its bubble.
func (p *Points) Run(seed uint64, settle func(), actors ...func()) (trace []string, err error) {
	return p.run("", rand.New(rand.NewPCG(seed, 0)).IntN, settle, actors)
}

// start is the first point of every actor.
const start = "start"

// run releases the actors one by one. pick chooses among n.
func (p *Points) run(prefix string, pick func(n int) int, settle func(), actors []func()) (trace []string, err error) {
	s := &schedule{prefix: prefix, running: len(actors)}
	p.Hook(s.at)
	defer p.Hook(nil)
	for i, fn := range actors {
		go func() {
			s.at(start, uint64(i))
			fn()
			s.mu.Lock()
			s.running--
			s.mu.Unlock()
		}()
		settle()
	}
	for {
		w, running := s.next(pick)
		if w == nil {
			if running > 0 {
				return trace, &Deadlock{running, trace}
			}
			return trace, nil
		}
		trace = append(trace, fmt.Sprintf("%s/%d", w.name, w.id))
		close(w.goOn)
		settle()
	}
}

// next returns one of the waiters. Several may have arrived since the last call, in
// any order, so they are sorted first.
func (s *schedule) next(pick func(n int) int) (w *waiter, running int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) == 0 {
		return nil, s.running
	}
	slices.SortFunc(s.waiting, func(a, b *waiter) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.id, b.id), cmp.Compare(a.seq, b.seq))
	})
	i := pick(len(s.waiting))
	w = s.waiting[i]
	s.waiting = slices.Delete(s.waiting, i, i+1)
	return w, s.running
}
