// Package gate counts many concurrent users; Close waits for all of them. Counts are
// sharded: the shared cache line of a sync.RWMutex costs sixteen threads more than a
// 4 KiB read. Unlike a read lock, a gate may be entered recursively.
package gate

import "sync/atomic"

// Shards is the number of counters. A user names the shard it uses, any number:
// concurrent users should name different ones.
const Shards = 16

// A Gate is open when it is made. It must not be copied.
type Gate struct {
	closed atomic.Bool
	wake   chan struct{} // made before closed is set
	users  [Shards]users
}

// users has two cache lines for itself, because processors fetch lines in pairs.
type users struct {
	n atomic.Int64
	_ [120]byte
}

// Enter adds a user, or reports false if the gate is closed.
func (g *Gate) Enter(shard uint32) bool {
	g.users[shard%Shards].n.Add(1)
	if g.closed.Load() {
		g.Leave(shard)
		return false
	}
	return true
}

// Leave removes the user that Enter added, with the same shard.
func (g *Gate) Leave(shard uint32) {
	g.users[shard%Shards].n.Add(-1)
	if g.closed.Load() {
		select {
		case g.wake <- struct{}{}:
		default:
		}
	}
}

// Close closes the gate, waits until no user is left, and reports whether it was open.
// The owner of the gate serialises calls of Close.
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

// empty may be wrong about a user that Enter rejects, but not about one that entered:
// it was counted before the gate was closed.
func (g *Gate) empty() bool {
	for i := range g.users {
		if g.users[i].n.Load() != 0 {
			return false
		}
	}
	return true
}
