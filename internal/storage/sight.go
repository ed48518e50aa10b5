package storage

import (
	"sync"
	"sync/atomic"
)

const (
	// sightLen is the part of a file that is looked at at a time, in cells of sightCell.
	sightLen  = 64 << 20
	sightCell = 1 << 20
	// sightUnit is what a read takes of a cell: what was taken before is a hit.
	sightUnit = sightCell / 16
	// sightReach is how far in front of what is read, or asked for, the kernel's own
	// readahead may be.
	sightReach = 4 * aheadStep
	// sightLooks is how often reads of what is there look behind that, if all is there: a
	// warm file costs nothing in the end.
	sightLooks = 1024
)

// A sight remembers what the page cache lacked of a file before anything near was read. What
// is there when a read begins says little about that: the kernel reads ahead of every
// reader by itself, 8 MiB with the settings of some machines, and goes on as long as
// somebody reads what it has brought. The zero value has seen nothing.
type sight struct {
	// looked is 1 + the last offset from which a read of what is there has looked behind
	// that; 0 for none.
	looked atomic.Int64
	looks  atomic.Int32 // since something was not there

	used  atomic.Bool // there are parts: reads of what is there need ask nothing otherwise
	mu    sync.Mutex
	parts map[int64]*sightPart // by offset, in units of sightLen
}

type sightPart struct {
	cells [sightLen / sightCell]sightedCell
	read  int64 // bytes, since it was looked at
	len   int64
}

type sightedCell struct {
	lacks int64  // bytes, without what was taken
	taken uint16 // a bit for each unit that was read up to its end
}

// take returns how many bytes of [from, to) of the cell the cache lacked, if they are read
// for the first time.
func (c *sightedCell) take(from, to int64) (lacks int64) {
	for at := from; at < to; {
		unit := at / sightUnit
		next := min((unit+1)*sightUnit, to)
		if bit := uint16(1) << unit; c.taken&bit == 0 {
			part := min(next-at, c.lacks)
			c.lacks -= part
			lacks += part
			if next == (unit+1)*sightUnit {
				c.taken |= bit
			}
		}
		at = next
	}
	return lacks
}

// spent reports that all of the part has been read since it was looked at: what comes now
// is another pass.
func (p *sightPart) spent() bool { return p.read >= p.len }

// look remembers what the cache lacks of the parts around [off, off+n) that are not known
// yet. missing counts the bytes that it lacks of a range, -1 if unknown.
func (s *sight) look(off, n, size int64, missing func(from, to int64) int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lookLocked(off, n, size, missing)
}

func (s *sight) lookLocked(off, n, size int64, missing func(from, to int64) int64) {
	if off >= size {
		return
	}
	for at := off / sightLen; at*sightLen < min(off+n, size); at++ {
		if p := s.parts[at]; p != nil && !p.spent() {
			continue
		}
		p := &sightPart{len: min(sightLen, size-at*sightLen)}
		for i := range p.cells {
			from := at*sightLen + int64(i)*sightCell
			if to := min(from+sightCell, size); from < to {
				p.cells[i].lacks = max(missing(from, to), 0)
			}
		}
		if s.parts == nil {
			s.parts = map[int64]*sightPart{}
		}
		s.parts[at] = p
		s.used.Store(true)
	}
}

// due reports whether a read at an offset, of what is there, is to look behind it, which it
// does then.
func (s *sight) due(off int64) bool {
	if last := s.looked.Load() - 1; last >= 0 && off >= last && off < last+sightReach {
		return false
	}
	if s.looks.Load() >= sightLooks {
		return false
	}
	s.looks.Add(1)
	s.looked.Store(off + 1)
	return true
}

// lookBehind looks at what follows off, if the cache ends soon: a page tells.
func (s *sight) lookBehind(off, size int64, missing func(from, to int64) int64) {
	at := min(off+2*sightReach, size-1)
	if at >= off && missing(at, at+1) != 0 {
		s.look(off, at-off, size, missing)
	}
}

// take returns how many bytes of [off, off+n), which is read now, the cache lacked, and
// counts them once. gone is how many it lacks now. Where that is none and nobody has looked
// before, it had all of them.
func (s *sight) take(off, n, size, gone int64, missing func(from, to int64) int64) (lacks int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetLocked(off, n)
	if gone > 0 {
		s.looks.Store(0)
		s.lookLocked(off, n+sightReach, size, missing)
	}
	s.cellsLocked(off, n, func(p *sightPart, c *sightedCell, from, to int64) {
		p.read += to - from
		lacks += c.take(from, to)
	})
	if gone == 0 && lacks > 0 {
		s.lookLocked(s.unread(off+n), sightReach, size, missing)
	}
	return max(lacks, gone) // what was there has been dropped
}

// unread is where to look behind a read that ends at end: not in its own part if all of that
// has been read now, since the last reads of it may be in flight.
func (s *sight) unread(end int64) int64 {
	if p := s.parts[(end-1)/sightLen]; p != nil && p.spent() {
		return (end + sightLen - 1) / sightLen * sightLen
	}
	return end
}

// passed notes that [off, off+n) was read around the cache.
func (s *sight) passed(off, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetLocked(off, n)
	s.cellsLocked(off, n, func(p *sightPart, _ *sightedCell, from, to int64) { p.read += to - from })
}

// inFront reports that the cache lacked some of a range that nobody has read since.
func (s *sight) inFront(off, n int64) (yes bool) {
	if !s.used.Load() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cellsLocked(off, n, func(_ *sightPart, c *sightedCell, _, _ int64) { yes = yes || c.lacks > 0 })
	return yes
}

// forgetLocked forgets what is known of a range before another pass.
func (s *sight) forgetLocked(off, n int64) {
	for at := off / sightLen; at*sightLen < off+n; at++ {
		if p := s.parts[at]; p != nil && p.spent() {
			delete(s.parts, at)
		}
	}
	s.used.Store(len(s.parts) > 0)
}

// cellsLocked calls do for each cell of [off, off+n) that is known, with the part of it in
// the range.
func (s *sight) cellsLocked(off, n int64, do func(p *sightPart, c *sightedCell, from, to int64)) {
	for end := off + n; off < end; {
		start := off &^ (sightCell - 1)
		next := min(start+sightCell, end)
		if p := s.parts[off/sightLen]; p != nil {
			do(p, &p.cells[off%sightLen/sightCell], off-start, next-start)
		}
		off = next
	}
}
