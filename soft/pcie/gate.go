package pcie

import "sync"

// A gate counts those who are inside and, once closed, lets nobody in.
type gate struct {
	mu     sync.Mutex
	empty  sync.Cond
	inside int
	closed bool
}

// enter reports whether the gate was open.
func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.inside++
	return true
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	if g.closed && g.inside == 0 && g.empty.L != nil {
		g.empty.Broadcast()
	}
}

// shut closes the gate and waits until nobody is inside. first reports whether
// the gate was open until now.
func (g *gate) shut() (first bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	first = !g.closed
	g.closed = true
	g.empty.L = &g.mu
	for g.inside > 0 {
		g.empty.Wait()
	}
	return first
}
