// Package syncpoint names points in the software machine at which tests pause
// goroutines, so that a race, such as DMA against a revoke, has a fixed outcome.
//
// [Points.Stop] stops one goroutine; [Points.Run] stops all and releases them one by
// one, in an order that follows from a seed.
//
// A point is never passed with a mutex held, and code that waits for another
// goroutine uses a channel or a condition, not a mutex. So every goroutine that does
// not run is at a point or in such a wait. Run relies on this.
package syncpoint

import (
	"sync"
	"sync/atomic"
)

// Points are the sync points of one machine. A nil *Points has none. The zero value
// is ready to use.
type Points struct {
	hook atomic.Pointer[func(name string, id uint64)]
}

// At passes a point. id tells the object, to distinguish goroutines at the same
// point.
func (p *Points) At(name string, id uint64) {
	if p == nil {
		return
	}
	if fn := p.hook.Load(); fn != nil {
		(*fn)(name, id)
	}
}

// Hook has fn called at every point, instead of an earlier hook; nil removes it.
func (p *Points) Hook(fn func(name string, id uint64)) {
	if fn == nil {
		p.hook.Store(nil)
		return
	}
	p.hook.Store(&fn)
}

// A Gate stops the first goroutine at a point.
type Gate struct {
	arrived chan struct{}
	opened  chan struct{}
	open    sync.Once
}

// Stop stops the first goroutine that passes the point. It replaces a hook.
func (p *Points) Stop(name string) *Gate {
	g := &Gate{arrived: make(chan struct{}), opened: make(chan struct{})}
	var taken atomic.Bool
	p.Hook(func(at string, _ uint64) {
		if at == name && taken.CompareAndSwap(false, true) {
			close(g.arrived)
			<-g.opened
		}
	})
	return g
}

// Arrived returns a channel that is closed when a goroutine is at the gate.
func (g *Gate) Arrived() <-chan struct{} { return g.arrived }

// Open releases the goroutine. It may be called twice.
func (g *Gate) Open() { g.open.Do(func() { close(g.opened) }) }
