// Package handle keeps the objects that C programs hold by opaque pointers. A
// handle is looked up, never trusted: one that was given back, that belongs to
// another table or that was made up is simply not found.
package handle

import (
	"sync"
	"sync/atomic"
)

// An ID is the value that C sees. It looks like a pointer, and leads nowhere.
type ID uint64

// An ID consists of the kind of the table, a generation that changes whenever a
// slot is used again, and the number of the slot.
const (
	slotShift = 4 // so that handles look aligned
	slotBits  = 20
	genBits   = 16
	genShift  = slotShift + slotBits
	kindShift = genShift + genBits // 40: below it no program has anything mapped
	maxSlots  = 1 << slotBits
)

// A Kind tells tables apart. Each table of a process has its own, from 1 on.
type Kind uint64

// A Table holds objects by ID. Looking up takes no lock: it is on the path of
// every read and write.
type Table[T any] struct {
	kind Kind

	mu    sync.Mutex // serialises writers
	free  []int
	slots atomic.Pointer[[]*slot[T]]
}

type slot[T any] struct {
	gen uint64 // guarded by Table.mu
	cur atomic.Pointer[item[T]]
}

type item[T any] struct {
	id ID
	v  T
}

// NewTable makes an empty table.
func NewTable[T any](k Kind) *Table[T] {
	t := &Table[T]{kind: k}
	t.slots.Store(new([]*slot[T]))
	return t
}

// Add enters v. It reports false when the table is full.
func (t *Table[T]) Add(v T) (ID, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i, s := t.freeSlot()
	if s == nil {
		return 0, false
	}
	s.gen++
	id := ID(uint64(t.kind)<<kindShift | (s.gen%(1<<genBits))<<genShift | uint64(i)<<slotShift)
	s.cur.Store(&item[T]{id, v})
	return id, true
}

// freeSlot finds room. Slots are used again in the order they were freed, so
// that a stale ID stays stale for as long as possible.
func (t *Table[T]) freeSlot() (int, *slot[T]) {
	slots := *t.slots.Load()
	if len(t.free) > minFree || len(slots) == maxSlots && len(t.free) > 0 {
		i := t.free[0]
		t.free = t.free[1:]
		return i, slots[i]
	}
	if len(slots) == maxSlots {
		return 0, nil
	}
	s := new(slot[T])
	grown := append(slots, s) // readers have the shorter slice: they do not see the new element
	t.slots.Store(&grown)
	return len(slots), s
}

// minFree is how many slots rest before one is used again.
const minFree = 64

// Get finds the object of an ID.
func (t *Table[T]) Get(id ID) (T, bool) {
	if it := t.item(id); it != nil {
		return it.v, true
	}
	var none T
	return none, false
}

func (t *Table[T]) item(id ID) *item[T] {
	slots := *t.slots.Load()
	i := uint64(id) >> slotShift % maxSlots
	if i >= uint64(len(slots)) {
		return nil
	}
	if it := slots[i].cur.Load(); it != nil && it.id == id {
		return it
	}
	return nil
}

// Stale reports whether an ID was given out by this table and its object is
// gone. It need not remember IDs of long ago.
func (t *Table[T]) Stale(id ID) bool {
	slots := *t.slots.Load()
	i := uint64(id) >> slotShift % maxSlots
	ours := uint64(id)>>kindShift == uint64(t.kind) && uint64(id)%(1<<slotShift) == 0
	return ours && i < uint64(len(slots)) && t.item(id) == nil
}

// Remove takes the object out. Only one of several callers gets it.
func (t *Table[T]) Remove(id ID) (T, bool) {
	var none T
	t.mu.Lock()
	defer t.mu.Unlock()
	it := t.item(id)
	if it == nil {
		return none, false
	}
	i := int(uint64(id) >> slotShift % maxSlots)
	(*t.slots.Load())[i].cur.Store(nil)
	t.free = append(t.free, i)
	return it.v, true
}

// RemoveFunc takes out all objects for which match is true and returns them.
func (t *Table[T]) RemoveFunc(match func(T) bool) []T {
	var out []T
	for _, s := range *t.slots.Load() {
		if it := s.cur.Load(); it != nil && match(it.v) {
			if v, ok := t.Remove(it.id); ok {
				out = append(out, v)
			}
		}
	}
	return out
}
