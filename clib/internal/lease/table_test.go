package lease

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
)

// granted is a lease of a buffer for a while.
func granted(base gpu.Addr, d time.Duration) *cufile.Lease {
	return &cufile.Lease{
		Base: base, FD: 7, Mem: make([]byte, 100), Below: 50, Until: cufile.Since() + d,
		Ops: 1, Bytes: 2, Nanos: 3, Stride: 4,
	}
}

// enter acts as C does: it returns the slot, with the user counted, or nil.
func (t *Table) enter(file handle.ID, base gpu.Addr, shard int) *Slot {
	first := place(file, base)
	for i := first; i < first+ways; i++ {
		s := &t.slots[i]
		if s.Handle.Load() != uint64(file) || s.Base.Load() != uint64(base) {
			continue
		}
		s.shards[shard].in.Add(1)
		if s.Handle.Load() == uint64(file) && s.Base.Load() == uint64(base) {
			return s
		}
		s.leave(shard, false)
	}
	return nil
}

func (s *Slot) leave(shard int, done bool) {
	n := ^uint64(0)
	if done {
		n += 1 << userBits
	}
	s.shards[shard].in.Add(n)
}

// there reports whether there is a lease.
func (t *Table) there(file handle.ID, base gpu.Addr) bool {
	s := t.enter(file, base, 0)
	if s != nil {
		s.leave(0, true)
	}
	return s != nil
}

const (
	file   handle.ID = 0x60000010
	buffer gpu.Addr  = 0x7f0000000000
)

// ofFile matches the slots of file.
func ofFile(o *owner) bool { return o.file == file }

func TestLease(t *testing.T) {
	table := NewTable(new(Slots))
	if table.there(file, buffer) {
		t.Fatal("there is a lease before any was made")
	}
	l := granted(buffer, time.Hour)
	table.grant(file, l)
	s := table.enter(file, buffer, 3)
	if s == nil {
		t.Fatal("the lease is not there")
	}
	if s.FD != 7 || s.Memory != address(l.Mem) || s.Length != 100 || s.Below != 50 || s.Ops != 1 || s.Bytes != 2 || s.Nanos != 3 || s.Stride != 4 {
		t.Errorf("the slot is %+v", s)
	}
	if table.there(file, buffer+4096) || table.there(file+16, buffer) {
		t.Error("a lease is there for others than its own")
	}
	l.Until += time.Minute
	before := s.Until.Load()
	table.grant(file, l)
	if after := s.Until.Load(); after != before+int64(time.Minute) {
		t.Errorf("renewed, it is good %v longer", time.Duration(after-before))
	}
	s.leave(3, true)
	if s.used() {
		t.Error("an empty slot has a user")
	}
}

// A slot never lasts longer than its lease, by C's clock.
func TestClocks(t *testing.T) {
	table := NewTable(new(Slots))
	for range 100 {
		first := cufile.Since()
		monotonic := time.Duration(nanotime(t))
		second := cufile.Since()
		if table.clock > monotonic-first {
			t.Fatalf("the clock is %v ahead, at most %v is true", table.clock, monotonic-first)
		}
		if late := monotonic - second - table.clock; late > 500*time.Microsecond {
			t.Logf("leases are %v shorter than they could be", late)
		}
	}
}

// Revoking waits for the users of the lease, and for no others.
func TestRecallWaits(t *testing.T) {
	for name, recall := range map[string]func(*Table){
		"file":   func(t *Table) { t.revoke(ofFile) },
		"buffer": func(t *Table) { t.RevokeBuffer(buffer) },
		// Other leases wanted the slot, but its user is still inside.
		"after eviction": func(t *Table) {
			t.slots[place(file, buffer)].Handle.Store(0)
			t.revoke(ofFile)
		},
	} {
		t.Run(name, func(t *testing.T) {
			table := NewTable(new(Slots))
			table.grant(file, granted(buffer, time.Hour))
			table.grant(file+16, granted(buffer+4096, time.Hour))
			other := table.enter(file+16, buffer+4096, 1)
			s := table.enter(file, buffer, 5)
			var left atomic.Bool
			done := make(chan bool)
			go func() {
				recall(table)
				done <- left.Load()
			}()
			for s.Handle.Load() != 0 {
				time.Sleep(time.Microsecond)
			}
			if table.there(file, buffer) {
				t.Error("a user entered a lease that is being revoked")
			}
			select {
			case <-done:
				t.Fatal("it was taken back with a user inside")
			case <-time.After(5 * time.Millisecond):
			}
			left.Store(true)
			s.leave(5, true)
			if !<-done {
				t.Error("it was taken back before the user had left")
			}
			if other.Handle.Load() == 0 {
				t.Error("the lease of another pair is gone")
			}
			other.leave(1, true)
		})
	}
}

// Two revokers of one lease both wait.
func TestBothHalvesEnd(t *testing.T) {
	table := NewTable(new(Slots))
	table.grant(file, granted(buffer, time.Hour))
	s := table.enter(file, buffer, 0)
	var back atomic.Int32
	var wg sync.WaitGroup
	wg.Go(func() { table.revoke(ofFile); back.Add(1) })
	for s.Handle.Load() != 0 {
		time.Sleep(time.Microsecond)
	}
	wg.Go(func() { table.RevokeBuffer(buffer); back.Add(1) })
	time.Sleep(2 * time.Millisecond)
	if back.Load() != 0 {
		t.Error("it was taken back with a user inside")
	}
	s.leave(0, true)
	wg.Wait()
}

// crowd are other pairs with the same first slot.
func crowd(n int) (bases []gpu.Addr) {
	for base := buffer + 4096; len(bases) < n; base += 4096 {
		if place(file, base) == place(file, buffer) {
			bases = append(bases, base)
		}
	}
	return bases
}

// A lease in use keeps its slot; an expired one makes room, unless it has users.
func TestRoom(t *testing.T) {
	table := NewTable(new(Slots))
	bases := crowd(ways + 1)
	for _, b := range bases {
		table.grant(file, granted(b, time.Hour))
	}
	for i, b := range bases {
		if table.there(file, b) != (i < ways) {
			t.Errorf("lease %d of %d: %t", i, ways, table.there(file, b))
		}
	}
	table = NewTable(new(Slots))
	for _, b := range bases[:ways] {
		table.grant(file, granted(b, -time.Second))
	}
	in := table.enter(file, bases[0], 2)
	table.grant(file, granted(bases[ways], time.Hour))
	if !table.there(file, bases[ways]) || table.there(file, bases[1]) {
		t.Error("no room was made")
	}
	if in.Base.Load() != uint64(bases[0]) {
		t.Error("a slot with a user was filled")
	}
	in.leave(2, false)
}

func TestPause(t *testing.T) {
	table := NewTable(new(Slots))
	table.grant(file, granted(buffer, time.Hour))
	s := table.enter(file, buffer, 0) // a pause does not wait
	table.Pause(true)
	s.leave(0, true)
	table.grant(file, granted(buffer, time.Hour))
	if table.there(file, buffer) {
		t.Error("there is a lease in the pause")
	}
	table.Pause(false)
	table.grant(file, granted(buffer, time.Hour))
	if !table.there(file, buffer) {
		t.Error("there is none after it")
	}
}

// Users come and go while files and buffers end: a user finds the fields of its
// handle, and an ended file or buffer has no users.
func TestUsersAgainstRecalls(t *testing.T) {
	table := NewTable(new(Slots))
	const pairs = 2 * ways
	bases := crowd(pairs)
	var alive [pairs]atomic.Bool
	var hits atomic.Int64
	var users, owners sync.WaitGroup
	stop := make(chan struct{})
	for u := range 8 {
		users.Go(func() {
			for i := u; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				runtime.Gosched()
				k := i % pairs
				s := table.enter(file, bases[k], u)
				if s == nil {
					continue
				}
				if !alive[k].Load() || s.Length != uint64(k) {
					t.Errorf("pair %d: ended, or with the slot of pair %d", k, s.Length)
				}
				hits.Add(1)
				s.leave(u, true)
			}
		})
	}
	for k := range pairs {
		owners.Go(func() {
			for range 400 {
				alive[k].Store(true)
				l := granted(bases[k], time.Microsecond)
				l.Mem = make([]byte, k)
				table.grant(file, l)
				before := hits.Load()
				for tries := 0; tries < 10 && hits.Load() == before; tries++ {
					runtime.Gosched()
				}
				table.RevokeBuffer(bases[k])
				alive[k].Store(false)
			}
		})
	}
	owners.Wait()
	close(stop)
	users.Wait()
	if hits.Load() == 0 {
		t.Error("no user ever entered")
	}
}

// TestThousandFiles: a program that goes round a thousand files with one buffer finds
// a lease for each, and one read that enters Go renews them all: the buffer was looked
// at, and a lease lasts no longer than that is fresh. Leases of other buffers are not
// renewed.
func TestThousandFiles(t *testing.T) {
	const files, other = 1024, buffer + 1<<30
	table := NewTable(new(Slots))
	first, later := granted(buffer, time.Minute), granted(buffer, time.Hour)
	for i := range handle.ID(files) {
		table.grant(file+i<<4, first)
	}
	table.grant(file, granted(other, time.Minute))
	for i := range handle.ID(files) {
		if !table.there(file+i<<4, buffer) {
			t.Errorf("no lease for file %d", i)
		}
	}
	table.grant(file+7<<4, later)
	for i := range handle.ID(files) {
		s := table.enter(file+i<<4, buffer, 0)
		if s == nil || s.Until.Load() != int64(later.Until+table.clock) {
			t.Fatalf("the lease of file %d was not renewed", i)
		}
		s.leave(0, false)
	}
	s := table.enter(file, other, 0)
	if s == nil || s.Until.Load() == int64(later.Until+table.clock) {
		t.Error("the lease of another buffer was renewed")
	}
	s.leave(0, false)
	table.RevokeBuffer(buffer)
	table.grant(file, later)
	if !table.there(file, buffer) || table.there(file+1<<4, buffer) {
		t.Error("after the buffer ended: a lease is left, or none can be made")
	}
}
