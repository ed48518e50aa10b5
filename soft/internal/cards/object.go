package cards

import (
	"errors"
	"fmt"
)

// A Name is how a process tells others of memory that it shares. It is valid while a
// process uses the memory.
type Name struct {
	ID    uint64 // random, so that only those who were told know it
	Card  uint32
	Unit  uint32 // the first
	Owner Owner
}

// An Owner is a process that shares memory.
type Owner struct {
	Place  uint32
	Serial uint64
}

// Owner returns this process.
func (c *Cards) Owner() Owner { return Owner{uint32(c.me), c.serial} }

// ErrStale means that a name is not, or no more, one of shared memory.
var ErrStale = errors.New("no memory of that name is shared: it was freed, or was never shared")

// Share returns the name of memory of card i that this process uses, in the order of its
// units. The same memory has the same name in all processes. Call with the lock held.
func (c *Cards) Share(i int, units []int) Name {
	card := c.cards[i]
	o := &card.objects[units[0]]
	if o.ID == 0 {
		for n, u := range units[1:] {
			card.next[units[n]] = uint32(u)
		}
		o.Count, o.ID = uint32(len(units)), random()
	}
	return Name{ID: o.ID, Card: uint32(i), Unit: uint32(units[0]), Owner: c.Owner()}
}

// Join makes this process a user of shared memory and returns its units. If owned is set,
// the process that shared it must still use it. Call with the lock held.
func (c *Cards) Join(n Name, owned bool) ([]int, error) {
	if int64(n.Card) >= int64(len(c.cards)) {
		return nil, ErrStale
	}
	card := c.cards[n.Card]
	if int64(n.Unit) >= int64(card.Units.Len()) {
		return nil, ErrStale
	}
	o := &card.objects[n.Unit]
	if n.ID == 0 || o.ID != n.ID || owned && !card.usedBy(n) {
		return nil, ErrStale
	}
	units, err := card.walk(int(n.Unit), int(o.Count))
	if err != nil {
		return nil, err
	}
	for _, u := range units {
		card.Units.Take(u)
	}
	return units, nil
}

// usedBy reports whether the process that shared memory uses it.
func (card *Card) usedBy(n Name) bool {
	o := n.Owner
	return o.Place < maxProcesses && o.Serial != 0 && card.cards.places[o.Place].Serial == o.Serial &&
		card.Units.takenBy(int(n.Unit), int(o.Place))
}

// walk returns the units of an object. It believes nothing that it reads.
func (card *Card) walk(u, count int) ([]int, error) {
	n := card.Units.Len()
	if count < 1 || count > n {
		return nil, fmt.Errorf("shared memory is damaged: an object of %d units on a card of %d", count, n)
	}
	seen := make(map[int]bool, count)
	units := make([]int, 0, count)
	for {
		if u >= n || seen[u] || !card.Units.Taken(u) {
			return nil, fmt.Errorf("shared memory is damaged: unit %d of an object", u)
		}
		seen[u] = true
		units = append(units, u)
		if len(units) == count {
			return units, nil
		}
		u = int(card.next[u])
	}
}

// forget ends the name of memory that no process uses.
func (card *Card) forget(u int) { card.objects[u].ID = 0 }
