// Package gate counts the users of something that can be taken away.
package gate

import "sync"

// A Gate counts users. The zero value is open.
type Gate struct {
	mu    sync.Mutex
	empty sync.Cond
	users int
	shut  bool
}

// Enter counts a user in and reports whether the gate is open.
func (g *Gate) Enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		return false
	}
	g.users++
	return true
}

// Leave counts a user out.
func (g *Gate) Leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.users--
	if g.shut && g.users == 0 && g.empty.L != nil {
		g.empty.Broadcast()
	}
}

// Shut closes the gate and waits until all users have left. It reports whether the
// gate was open.
func (g *Gate) Shut() (was bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	was = !g.shut
	g.shut = true
	g.empty.L = &g.mu
	for g.users > 0 {
		g.empty.Wait()
	}
	return was
}

// Open opens the gate again.
func (g *Gate) Open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = false
}
