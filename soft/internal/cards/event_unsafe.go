package cards

import (
	"errors"
	"structs"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxEvents is the number of events that processes share at a time.
const maxEvents = 4096

// An eventSlot is what processes know of an event. Records are numbered; one that is done
// says so of all before it, as the value of a semaphore on hardware does.
type eventSlot struct {
	_ structs.HostLayout
	// Guarded by the lock.
	ID       uint64 // 0: free
	Users    [words]uint64
	Recorder Owner // of the newest record
	// Changed by atomic operations; Recorded with the lock held.
	Recorded uint64
	Done     uint64
	Changes  uint32 // of Done, for those who wait
	_        [52]byte
}

var _ [128]byte = [unsafe.Sizeof(eventSlot{})]byte{}

// An EventName is how a process tells others of an event.
type EventName struct {
	ID    uint64
	Slot  uint32
	_     uint32
	Owner Owner
}

// An Event is an event that processes share, as one of them uses it.
type Event struct {
	cards *Cards
	slot  *eventSlot
	name  EventName
}

var (
	// ErrNoEvents means that too many events are shared.
	ErrNoEvents = errors.New("4096 events are shared between processes, and more cannot be")
	// ErrStaleEvent means that a name is not, or no more, one of an event.
	ErrStaleEvent = errors.New("no event of that name is shared: it was destroyed, or was never shared")
	// ErrRecorderEnded means that a process ended before the work that it recorded an event after.
	ErrRecorderEnded = errors.New("the process that recorded the event ended before the work in front of it was done")
)

// NewEvent makes an event that other processes can open.
func (c *Cards) NewEvent() (*Event, error) {
	c.Lock()
	defer c.Unlock()
	for try := range 2 {
		for i := range c.events {
			if s := &c.events[i]; s.ID == 0 {
				*s = eventSlot{ID: random()}
				s.use(c.me)
				return &Event{c, s, EventName{ID: s.ID, Slot: uint32(i), Owner: c.Owner()}}, nil
			}
		}
		if try == 0 {
			c.reap()
		}
	}
	return nil, ErrNoEvents
}

// OpenEvent opens an event of another process, which must still have it.
func (c *Cards) OpenEvent(n EventName) (*Event, error) {
	c.Lock()
	defer c.Unlock()
	if int64(n.Slot) >= int64(len(c.events)) || n.ID == 0 {
		return nil, ErrStaleEvent
	}
	s, o := &c.events[n.Slot], n.Owner
	if s.ID != n.ID || o.Place >= maxProcesses || !c.owner(o) || !s.usedBy(int(o.Place)) {
		return nil, ErrStaleEvent
	}
	s.use(c.me)
	return &Event{c, s, n}, nil
}

// owner reports whether the process at a place is still the same, and lives.
func (c *Cards) owner(o Owner) bool {
	p := &c.places[o.Place%maxProcesses]
	return o.Serial != 0 && p.Serial == o.Serial && (int(o.Place) == c.me || p.process().lives())
}

func (s *eventSlot) use(place int)         { s.Users[place/64] |= 1 << (place % 64) }
func (s *eventSlot) usedBy(place int) bool { return s.Users[place/64]&(1<<(place%64)) != 0 }

// drop ends the use of an event by the process at a place. The last one frees the slot.
func (s *eventSlot) drop(place int) {
	s.Users[place/64] &^= 1 << (place % 64)
	if s.Users == [words]uint64{} {
		s.ID = 0
	}
}

// Name returns the name for other processes.
func (e *Event) Name() EventName { return e.name }

// Close ends the use of the event by this process. Records that it has made still complete.
func (e *Event) Close() {
	e.cards.Lock()
	defer e.cards.Unlock()
	if e.slot.ID == e.name.ID {
		e.slot.drop(e.cards.me)
	}
}

// A Record is one record of an event.
type Record struct {
	event    *Event
	number   uint64
	recorder Owner
}

// Record makes the newest record, which this process completes.
func (e *Event) Record() Record {
	e.cards.Lock()
	defer e.cards.Unlock()
	e.slot.Recorder = e.cards.Owner()
	return Record{e, atomic.AddUint64(&e.slot.Recorded, 1), e.slot.Recorder}
}

// Newest returns the newest record, of any process. Before the first it is done.
func (e *Event) Newest() Record {
	e.cards.Lock()
	defer e.cards.Unlock()
	return Record{e, atomic.LoadUint64(&e.slot.Recorded), e.slot.Recorder}
}

// mine reports whether the slot is still that of the event: it may be another's after the last
// process has closed it.
func (r Record) mine() bool { return r.event.slot.ID == r.event.name.ID }

// Complete completes a record.
func (r Record) Complete() {
	s := r.event.slot
	r.event.cards.Lock()
	defer r.event.cards.Unlock()
	if !r.mine() || atomic.LoadUint64(&s.Done) >= r.number {
		return
	}
	atomic.StoreUint64(&s.Done, r.number)
	atomic.AddUint32(&s.Changes, 1)
	const wake, all = 1, 1<<31 - 1
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&s.Changes)), wake, all, 0, 0, 0)
}

// Done reports whether the record is complete. A record that never will be is an error.
func (r Record) Done() (bool, error) {
	s := r.event.slot
	if atomic.LoadUint64(&s.Done) >= r.number {
		return true, nil
	}
	r.event.cards.Lock()
	defer r.event.cards.Unlock()
	switch {
	case atomic.LoadUint64(&s.Done) >= r.number || !r.mine():
		return true, nil
	case !r.event.cards.owner(r.recorder):
		return true, ErrRecorderEnded
	}
	return false, nil
}

// Wait waits until the record is complete, or stopped reports true, for which it looks every
// few milliseconds.
func (r Record) Wait(stopped func() bool) error {
	word := &r.event.slot.Changes
	for {
		seen := atomic.LoadUint32(word)
		if done, err := r.Done(); done || stopped() {
			return err
		}
		wait(word, seen)
	}
}
