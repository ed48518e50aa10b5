// Package lease lets C read small ranges of files into GPU memory without
// entering Go, which would cost more than a third of such a read.
//
// A lease (cufile.Lease) is published in a slot, which C looks up by the handle of
// the file and the base of the buffer; shim/lease.c is the other half. A lease
// expires after 1 ms unless a call that enters Go renews it, and is revoked before
// its file or buffer ends.
//
// # The protocol
//
// A user counts itself in, then checks the handle. A revoker clears the handle,
// then waits for zero users. Both are sequentially consistent, so one sees the
// other. A slot is filled only while its handle is clear and it has no users.
package lease

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
)

// A Table publishes leases: it is the cufile.LeaseHolder of the C library. It is
// safe for concurrent use; a nil Table has no leases.
type Table struct {
	slots *Slots
	clock time.Duration // what CLOCK_MONOTONIC is ahead of cufile.Since
	ids   sync.Map      // handle.ID by *cufile.File: C knows handles, package cufile files

	mu     sync.Mutex
	paused bool
	owners [slots]owner
	// byBuffer are the slots that were filled for a buffer and not for another one
	// since. A lease ends when its buffer must be looked at again, so the read that
	// did that renews the leases of all files with that buffer: a program that goes
	// round a thousand files does not come back to one in time.
	byBuffer map[gpu.Addr][]int
}

// An owner is the pair that a slot was last filled for. It stays when the lease
// has ended, because users may still be inside.
type owner struct {
	file   handle.ID
	buffer gpu.Addr
	fills  atomic.Uint64
}

// NewTable makes a table of slots without users.
func NewTable(s *Slots) *Table {
	return &Table{slots: s, clock: ahead(), byBuffer: map[gpu.Addr][]int{}}
}

// ahead is what CLOCK_MONOTONIC is ahead of cufile.Since, which is the same clock
// with another origin. Time passes between the two readings, which makes the
// difference smaller and leases shorter; the largest of eight is the best.
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
	return int(mixed>>(64-setBits)) * ways
}

// AddFile notes the handle of a file, before C has it.
func (t *Table) AddFile(f *cufile.File, id handle.ID) {
	if t != nil {
		t.ids.Store(f, id)
	}
}

// RemoveFile forgets a closed file.
func (t *Table) RemoveFile(f *cufile.File) {
	if t != nil {
		t.ids.Delete(f)
	}
}

// Grant publishes a lease. C cannot ask for a file that has no handle yet.
func (t *Table) Grant(l cufile.Lease) {
	if id, ok := t.ids.Load(l.File); ok {
		t.grant(id.(handle.ID), &l)
	}
}

// grant publishes a lease, or renews it. It does nothing if all slots are in use
// or another call holds the lock: the read that brought the lease must not wait,
// and the next read brings it again.
func (t *Table) grant(file handle.ID, l *cufile.Lease) {
	if !t.mu.TryLock() {
		return
	}
	defer t.mu.Unlock()
	if t.paused {
		return
	}
	if t.renew(file, l) {
		return
	}
	if i, ok := t.room(place(file, l.Base)); ok {
		t.fill(i, file, l)
	}
}

// renew extends the leases of a buffer, and reports whether that of the file is one
// of them.
func (t *Table) renew(file handle.ID, l *cufile.Lease) (found bool) {
	until := int64(l.Until + t.clock)
	for _, i := range t.byBuffer[l.Base] {
		if s := &t.slots[i]; s.Handle.Load() != 0 && s.Until.Load() < until {
			s.Until.Store(until)
		}
		found = found || t.owners[i].file == file && t.slots[i].Handle.Load() != 0
	}
	return found
}

// own notes that a slot is filled for a pair.
func (t *Table) own(i int, file handle.ID, buffer gpu.Addr) {
	o := &t.owners[i]
	if o.fills.Load() == 0 || o.buffer != buffer {
		t.disown(i)
		t.byBuffer[buffer] = append(t.byBuffer[buffer], i)
	}
	o.file, o.buffer = file, buffer
	o.fills.Add(1)
}

// disown removes a slot from those of its buffer.
func (t *Table) disown(i int) {
	of := t.owners[i].buffer
	left := slices.DeleteFunc(t.byBuffer[of], func(j int) bool { return j == i })
	if len(left) == 0 {
		delete(t.byBuffer, of)
	} else {
		t.byBuffer[of] = left
	}
}

// room finds a slot without users: a clear one, or one whose lease has expired,
// which it clears.
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

// fill writes a lease into a clear slot without users. The handle comes last.
func (t *Table) fill(i int, file handle.ID, l *cufile.Lease) {
	s := &t.slots[i]
	t.own(i, file, l.Base)
	s.Base.Store(uint64(l.Base))
	s.Until.Store(int64(l.Until + t.clock))
	s.Memory, s.Length, s.Below = address(l.Mem), uint64(len(l.Mem)), l.Below
	s.Ops, s.Bytes, s.Nanos, s.Stride = uint64(l.Ops), uint64(l.Bytes), uint64(l.Nanos), uint64(l.Stride)
	s.FD = int32(l.FD)
	s.Handle.Store(uint64(file))
}

// RevokeFile ends the leases of a file and returns when none is in use. It is
// called when the file is closed or its routes change.
func (t *Table) RevokeFile(f *cufile.File) {
	if id, ok := t.ids.Load(f); ok {
		t.revoke(func(o *owner) bool { return o.file == id.(handle.ID) })
	}
}

// RevokeBuffer ends the leases of the buffer at base and returns when none is in
// use.
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

// wait waits for the users of a cleared slot: until it has none, or was filled
// again, which implies that it had none.
func (t *Table) wait(i int, fills uint64) {
	const longest = time.Millisecond
	for pause := time.Microsecond; t.slots[i].used() && t.owners[i].fills.Load() == fills; pause = min(2*pause, longest) {
		time.Sleep(pause)
	}
}

// Pause ends all leases, without waiting for their users, and grants none until
// it is switched off.
func (t *Table) Pause(on bool) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.paused = on
	for i := range t.slots {
		if t.owners[i].fills.Load() > 0 { // the memory of others is not there yet
			t.slots[i].Handle.Store(0)
		}
	}
}

// used reports whether the slot has users. One that is about to find another
// handle counts, too.
func (s *Slot) used() bool {
	for i := range s.shards {
		if s.shards[i].in.Load()%(1<<userBits) != 0 {
			return true
		}
	}
	return false
}
