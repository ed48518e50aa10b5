// Package lease lets C read small pieces of files into GPU memory without
// entering Go, which would cost more than a third of such a read.
//
// What it takes (package cufile calls it a loan) is published in a slot that C
// looks up by the handle of the file and the base of the buffer; shim/lease.c is
// the half that uses it. Nothing rests on C's goodwill: a lease ends by itself
// after a millisecond, unless a call that comes to Go renews it, and it is taken
// back before anything that it speaks of ends.
//
// # The protocol
//
// A user adds itself to the slot and then looks whether the handle there is its
// own. Who takes a lease back clears the handle and then waits until no user is
// there. Both are sequentially consistent, so that one of them sees the other. A
// slot is filled only when its handle is clear and nobody is in it.
package lease

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
)

// A Table publishes leases. It is safe for concurrent use.
type Table struct {
	slots *Slots
	clock time.Duration // what CLOCK_MONOTONIC is ahead of cufile.Since

	mu     sync.Mutex
	paused bool
	owners [slots]owner
}

// An owner is the pair that a slot was last filled for. It stays when the lease
// has ended: somebody may still be inside.
type owner struct {
	file   handle.ID
	buffer gpu.Addr
	fills  atomic.Uint64
}

// NewTable makes a table of slots in which nobody is.
func NewTable(s *Slots) *Table { return &Table{slots: s, clock: ahead()} }

// ahead is what CLOCK_MONOTONIC is ahead of cufile.Since, which is the same clock
// from another beginning. Between the two readings time passes, which makes the
// difference smaller and leases shorter; the largest of a few is the nearest.
func ahead() time.Duration {
	var best time.Duration
	for range 8 {
		var ts unix.Timespec
		if unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) != nil {
			return 0
		}
		best = max(best, time.Duration(ts.Nano())-cufile.Since())
	}
	return best
}

// place is the first slot for a pair: culvert_lease_place.
func place(file handle.ID, buffer gpu.Addr) int {
	mixed := (uint64(file)>>4 + uint64(buffer)>>12) * 0x9e3779b97f4a7c15
	return int(mixed>>58) * ways
}

// Grant publishes a lease, or renews it. Where all slots are taken by others that
// are in use, or somebody else is at the table, it does nothing: the read that
// brought the loan must not wait, and the next one will bring it again.
func (t *Table) Grant(file handle.ID, l *cufile.Lease) {
	if !t.mu.TryLock() {
		return
	}
	defer t.mu.Unlock()
	if t.paused {
		return
	}
	first := place(file, l.Base)
	for i := first; i < first+ways; i++ {
		if o := &t.owners[i]; o.file == file && o.buffer == l.Base && t.slots[i].Handle.Load() != 0 {
			t.slots[i].Until.Store(int64(l.Until + t.clock))
			return
		}
	}
	if i, ok := t.room(first); ok {
		t.fill(i, file, l)
	}
}

// room finds a slot for a lease: one that is clear, or one whose lease has run
// out, which it clears. Somebody may still be in either.
func (t *Table) room(first int) (int, bool) {
	for _, old := range []int64{0, int64(cufile.Since() + t.clock)} {
		for i := first; i < first+ways; i++ {
			s := &t.slots[i]
			if s.Handle.Load() != 0 && s.Until.Load() > old {
				continue
			}
			s.Handle.Store(0)
			if !s.used() {
				return i, true
			}
		}
	}
	return 0, false
}

// fill writes a lease into a slot that is clear and empty. The handle comes last.
func (t *Table) fill(i int, file handle.ID, l *cufile.Lease) {
	o, s := &t.owners[i], &t.slots[i]
	o.file, o.buffer = file, l.Base
	o.fills.Add(1)
	s.Base.Store(uint64(l.Base))
	s.Until.Store(int64(l.Until + t.clock))
	s.Memory, s.Length, s.Below = address(l.Mem), uint64(len(l.Mem)), l.Below
	s.Ops, s.Bytes, s.Nanos, s.Stride = uint64(l.Ops), uint64(l.Bytes), uint64(l.Nanos), uint64(l.Stride)
	s.FD = int32(l.FD)
	s.Handle.Store(uint64(file))
}

// RevokeFile ends the leases of a file and returns when nobody uses one.
func (t *Table) RevokeFile(file handle.ID) {
	t.revoke(func(o *owner) bool { return o.file == file })
}

// RevokeBuffer ends the leases of the buffer at base and returns when nobody uses
// one.
func (t *Table) RevokeBuffer(base gpu.Addr) {
	t.revoke(func(o *owner) bool { return o.buffer == base })
}

func (t *Table) revoke(match func(*owner) bool) {
	type visit struct {
		slot  int
		fills uint64
	}
	var visits []visit
	t.mu.Lock()
	for i := range t.owners {
		if o := &t.owners[i]; match(o) {
			t.slots[i].Handle.Store(0)
			visits = append(visits, visit{i, o.fills.Load()})
		}
	}
	t.mu.Unlock()
	for _, v := range visits {
		t.wait(v.slot, v.fills)
	}
}

// wait returns when those have left a cleared slot who were in it: when it is
// seen empty, or was filled again, which presupposes that it was.
func (t *Table) wait(i int, fills uint64) {
	const longest = time.Millisecond
	for pause := time.Microsecond; t.slots[i].used() && t.owners[i].fills.Load() == fills; pause = min(2*pause, longest) {
		time.Sleep(pause)
	}
}

// Pause ends all leases, without waiting for those who use one, and makes no new
// ones until Resume.
func (t *Table) Pause() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.paused = true
	for i := range t.slots {
		t.slots[i].Handle.Store(0)
	}
}

// Resume ends a pause.
func (t *Table) Resume() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.paused = false
}

// used reports whether somebody is in the slot. One who is being turned away
// counts, too.
func (s *Slot) used() bool {
	for i := range s.shards {
		if s.shards[i].in.Load()%(1<<userBits) != 0 {
			return true
		}
	}
	return false
}
