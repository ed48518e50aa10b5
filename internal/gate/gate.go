// Package gate lets many users through at a time and makes one closer wait for
// them all. A sync.RWMutex does the same, but its readers share a cache line:
// sixteen threads that read 4 KiB at a time would spend more on the lock than on
// the read. A gate counts its users in several places; and unlike a read lock it
// may be entered twice.
package gate

import "sync/atomic"

// Shards is the number of places. A user says which one is theirs, any number:
// users that run at the same time should say different ones.
const Shards = 16

// A Gate is open when it is made. It must not be copied.
type Gate struct {
	closed atomic.Bool
	wake   chan struct{} // made before closed is set
	users  [Shards]users
}

// users fills a cache line, and its neighbour's too where lines come in pairs.
type users struct {
	n atomic.Int64
	_ [120]byte
}

// Enter goes through, or reports false when the gate is closed.
func (g *Gate) Enter(shard uint32) bool {
	g.users[shard%Shards].n.Add(1)
	if g.closed.Load() {
		g.Leave(shard)
		return false
	}
	return true
}

// Leave ends what Enter began, with the same shard.
func (g *Gate) Leave(shard uint32) {
	g.users[shard%Shards].n.Add(-1)
	if g.closed.Load() {
		select {
		case g.wake <- struct{}{}:
		default:
		}
	}
}

// Close shuts the gate, waits until everybody has left, and reports whether it
// was open. The owner of the gate serialises calls of Close.
func (g *Gate) Close() bool {
	if g.closed.Load() {
		return false
	}
	g.wake = make(chan struct{}, 1)
	g.closed.Store(true)
	for !g.empty() {
		<-g.wake
	}
	return true
}

// Closed reports whether Close was called.
func (g *Gate) Closed() bool { return g.closed.Load() }

// empty may be wrong about a user who is being turned away, but not about one
// who got through: that one was counted before the gate was closed.
func (g *Gate) empty() bool {
	for i := range g.users {
		if g.users[i].n.Load() != 0 {
			return false
		}
	}
	return true
}
