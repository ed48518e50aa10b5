// Package handle keeps the objects to which C programs have opaque pointers. A
// handle is looked up, never followed: one that was released, that belongs to
// another table or that was never given out is not found.
package handle

import (
	"sync"
	"sync/atomic"
)

// An ID is the value that C sees. It looks like a pointer to unmapped memory.
type ID uint64

// An ID consists of the kind of the table, a generation that changes whenever a
// slot is reused, and the number of the slot.
const (
	slotShift = 4 // handles look aligned
	slotBits  = 20
	genBits   = 16
	genShift  = slotShift + slotBits
	kindShift = genShift + genBits // 40: programs map nothing below
	maxSlots  = 1 << slotBits
)

// A Kind distinguishes the tables of a process, from 1 on.
type Kind uint64

// A Table contains objects by ID. Get takes no lock: it is on the path of every
// read and write.
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

// Add adds v. It returns false if the table is full.
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

// freeSlot finds a slot. Slots are reused in the order in which they were freed, so
// that a stale ID stays stale as long as possible.
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
	grown := append(slots, s) // readers have the shorter slice
	t.slots.Store(&grown)
	return len(slots), s
}

// minFree is the number of free slots from which one is reused.
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

// Stale reports whether an ID is one of this table and its object was removed. It
// may accept IDs that were never given out.
func (t *Table[T]) Stale(id ID) bool {
	slots := *t.slots.Load()
	i := uint64(id) >> slotShift % maxSlots
	ours := uint64(id)>>kindShift == uint64(t.kind) && uint64(id)%(1<<slotShift) == 0
	return ours && i < uint64(len(slots)) && t.item(id) == nil
}

// Remove removes the object. Only one of several callers gets it.
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

// All returns all objects.
func (t *Table[T]) All() (all []T) {
	for _, s := range *t.slots.Load() {
		if it := s.cur.Load(); it != nil {
			all = append(all, it.v)
		}
	}
	return all
}

// RemoveFunc removes all objects for which match is true and returns them.
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
