// Package syncpoint names places in the software machine where its traffic can be
// stopped. A race between a DMA and a revoke cannot be tested by luck: the code
// that may race passes a named point, and a test decides who goes on first.
//
// [Points.Stop] stops one passer-by; [Run] stops everybody, everywhere, and
// lets them go one by one in an order that follows from a seed.
//
// A point never stands inside a mutex, and whoever waits for another waits on a
// channel or a condition, not on a mutex. So everybody who does not run stands
// still at a point or in such a wait, which is what Run relies on.
package syncpoint

import (
	"sync"
	"sync/atomic"
)

// Points are the sync points of one machine. A nil *Points has none. The zero
// value is ready for use.
type Points struct {
	hook atomic.Pointer[func(name string, id uint64)]
}

// At is called by whoever passes the point. id says which object the passer-by
// deals with, to tell apart those who stand at the same point.
func (p *Points) At(name string, id uint64) {
	if p == nil {
		return
	}
	if fn := p.hook.Load(); fn != nil {
		(*fn)(name, id)
	}
}

// Hook has fn called by everybody who passes any point, in place of what was
// hooked in before; nil unhooks.
func (p *Points) Hook(fn func(name string, id uint64)) {
	if fn == nil {
		p.hook.Store(nil)
		return
	}
	p.hook.Store(&fn)
}

// A Gate stops the first who comes to a point.
type Gate struct {
	arrived chan struct{}
	opened  chan struct{}
	open    sync.Once
}

// Stop closes the point for the first who comes; the others pass. It takes the
// place of a hook.
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

// Arrived is closed when somebody stands at the gate.
func (g *Gate) Arrived() <-chan struct{} { return g.arrived }

// Open lets them go on, and everybody who comes later. It may be called twice.
func (g *Gate) Open() { g.open.Do(func() { close(g.opened) }) }
