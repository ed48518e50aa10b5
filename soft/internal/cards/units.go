package cards

// Units are the units of a card, with a bit for each process that uses a unit.
type Units struct {
	bits   []uint64 // stride words for each unit
	stride int
	word   int    // where the bit of this process is in a unit's words
	bit    uint64 // that bit
	free   *int64
	freed  func(u int) // called for a unit that no process uses any more
}

// NewUnits returns n free units of a card that only this process uses.
func NewUnits(n int) Units {
	free := int64(n)
	return Units{bits: make([]uint64, n), stride: 1, bit: 1, free: &free, freed: func(int) {}}
}

// as makes the units those of the process at a place.
func (s *Units) as(place int) { s.word, s.bit = place/64, 1<<(place%64) }

// Len returns the number of units.
func (s *Units) Len() int { return len(s.bits) / s.stride }

// Free returns the number of free units. It can be wrong if another process damaged the
// memory.
func (s *Units) Free() int { return int(min(max(*s.free, 0), int64(s.Len()))) }

// Taken reports whether a process uses unit u.
func (s *Units) Taken(u int) bool {
	if s.stride == 1 {
		return s.bits[u] != 0
	}
	var any uint64
	for _, w := range s.bits[u*s.stride:][:s.stride] {
		any |= w
	}
	return any != 0
}

// takenBy reports whether the process at a place uses unit u.
func (s *Units) takenBy(u, place int) bool {
	return s.bits[u*s.stride+place/64]&(1<<(place%64)) != 0
}

// Take makes this process a user of unit u.
func (s *Units) Take(u int) {
	if !s.Taken(u) {
		s.freed(u) // again: a process may have been killed before it did so
		*s.free--
	}
	s.bits[u*s.stride+s.word] |= s.bit
}

// Give ends this process's use of unit u.
func (s *Units) Give(u int) { s.give(u, s.word, s.bit) }

func (s *Units) give(u, word int, bit uint64) {
	if w := &s.bits[u*s.stride+word]; *w&bit != 0 {
		*w &^= bit
		if !s.Taken(u) {
			s.freed(u)
			*s.free++
		}
	}
}

// clear ends the use of all units by the process at a place.
func (s *Units) clear(place int) {
	for u := range s.Len() {
		s.give(u, place/64, 1<<(place%64))
	}
}

// Recount counts the free units.
func (s *Units) Recount() {
	n := int64(0)
	for u := range s.Len() {
		if !s.Taken(u) {
			n++
		}
	}
	*s.free = n
}
