package storage

import (
	"sync"
	"sync/atomic"
)

const (
	// beforePartLen is the part of a file that is looked at at a time, in cells of beforeCellLen.
	beforePartLen = 64 << 20
	beforeCellLen = 1 << 20
	// beforeUnitLen is what a read takes of a cell: what was taken before is a hit.
	beforeUnitLen = beforeCellLen / 16
	// kernelReach is how far in front of what is read, or asked for, the kernel's own
	// readahead may be.
	kernelReach = 4 * aheadStep
	// maxLooks is how often reads of what is there look behind that, if all is there: a
	// warm file costs nothing in the end.
	maxLooks = 1024
)

// A cacheBefore remembers which bytes of a file the page cache lacked before this pass over
// the file. Asking when a read begins is too late: the kernel reads ahead of every reader by
// itself, 8 MiB with the settings of some machines, so by then the bytes are there. The zero
// value is ready to use.
type cacheBefore struct {
	// looked is 1 + the last offset from which a read of what is there has looked behind
	// that; 0 for none.
	looked atomic.Int64
	looks  atomic.Int32 // since something was not there

	used  atomic.Bool // there are parts: reads of what is there need ask nothing otherwise
	mu    sync.Mutex
	parts map[int64]*beforePart // by offset, in units of beforePartLen
}

type beforePart struct {
	cells [beforePartLen / beforeCellLen]beforeCell
	read  int64 // bytes, since it was looked at
	len   int64
}

type beforeCell struct {
	lacks int64  // bytes, without what was taken
	taken uint16 // a bit for each unit that was read up to its end
}

// take returns how many bytes of [from, to) of the cell the cache lacked, if they are read
// for the first time.
func (c *beforeCell) take(from, to int64) (lacks int64) {
	for at := from; at < to; {
		unit := at / beforeUnitLen
		next := min((unit+1)*beforeUnitLen, to)
		if bit := uint16(1) << unit; c.taken&bit == 0 {
			part := min(next-at, c.lacks)
			c.lacks -= part
			lacks += part
			if next == (unit+1)*beforeUnitLen {
				c.taken |= bit
			}
		}
		at = next
	}
	return lacks
}

// spent reports that all of the part has been read since it was looked at: what comes now
// is another pass.
func (p *beforePart) spent() bool { return p.read >= p.len }

// look remembers what the cache lacks of the parts around [off, off+n) that are not known
// yet. missing counts the bytes that it lacks of a range, -1 if unknown.
func (s *cacheBefore) look(off, n, size int64, missing func(from, to int64) int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lookLocked(off, n, size, missing)
}

func (s *cacheBefore) lookLocked(off, n, size int64, missing func(from, to int64) int64) {
	if off >= size {
		return
	}
	for at := off / beforePartLen; at*beforePartLen < min(off+n, size); at++ {
		if p := s.parts[at]; p != nil && !p.spent() {
			continue
		}
		p := &beforePart{len: min(beforePartLen, size-at*beforePartLen)}
		for i := range p.cells {
			from := at*beforePartLen + int64(i)*beforeCellLen
			if to := min(from+beforeCellLen, size); from < to {
				p.cells[i].lacks = max(missing(from, to), 0)
			}
		}
		if s.parts == nil {
			s.parts = map[int64]*beforePart{}
		}
		s.parts[at] = p
		s.used.Store(true)
	}
}

// due reports whether a read at an offset, of what is there, is to look behind it, which it
// does then.
func (s *cacheBefore) due(off int64) bool {
	if last := s.looked.Load() - 1; last >= 0 && off >= last && off < last+kernelReach {
		return false
	}
	if s.looks.Load() >= maxLooks {
		return false
	}
	s.looks.Add(1)
	s.looked.Store(off + 1)
	return true
}

// lookBehind looks at what follows off, if the cache ends soon: a page tells.
func (s *cacheBefore) lookBehind(off, size int64, missing func(from, to int64) int64) {
	at := min(off+2*kernelReach, size-1)
	if at >= off && missing(at, at+1) != 0 {
		s.look(off, at-off, size, missing)
	}
}

// take is called before [off, off+n) is read. It returns how many of these bytes the cache
// lacked before this pass; a byte counts in one call only. gone is how many it lacks now. If
// that is 0 in a part that was not looked at, the cache had all of them.
func (s *cacheBefore) take(off, n, size, gone int64, missing func(from, to int64) int64) (lacks int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetLocked(off, n)
	if gone > 0 {
		s.looks.Store(0)
		s.lookLocked(off, n+kernelReach, size, missing)
	}
	s.cellsLocked(off, n, func(p *beforePart, c *beforeCell, from, to int64) {
		p.read += to - from
		lacks += c.take(from, to)
	})
	if gone == 0 && lacks > 0 {
		s.lookLocked(s.unread(off+n), kernelReach, size, missing)
	}
	return max(lacks, gone) // what was there has been dropped
}

// unread is where to look behind a read that ends at end: not in its own part if all of that
// has been read now, since the last reads of it may be in flight.
func (s *cacheBefore) unread(end int64) int64 {
	if p := s.parts[(end-1)/beforePartLen]; p != nil && p.spent() {
		return (end + beforePartLen - 1) / beforePartLen * beforePartLen
	}
	return end
}

// passed notes that [off, off+n) was read around the cache.
func (s *cacheBefore) passed(off, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetLocked(off, n)
	s.cellsLocked(off, n, func(p *beforePart, _ *beforeCell, from, to int64) { p.read += to - from })
}

// inFront reports whether the range has bytes that the cache lacked before this pass and that
// were not read in it yet.
func (s *cacheBefore) inFront(off, n int64) (yes bool) {
	if !s.used.Load() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cellsLocked(off, n, func(_ *beforePart, c *beforeCell, _, _ int64) { yes = yes || c.lacks > 0 })
	return yes
}

// forgetLocked forgets what is known of a range before another pass.
func (s *cacheBefore) forgetLocked(off, n int64) {
	for at := off / beforePartLen; at*beforePartLen < off+n; at++ {
		if p := s.parts[at]; p != nil && p.spent() {
			delete(s.parts, at)
		}
	}
	s.used.Store(len(s.parts) > 0)
}

// cellsLocked calls do for each cell of [off, off+n) that is known, with the part of it in
// the range.
func (s *cacheBefore) cellsLocked(off, n int64, do func(p *beforePart, c *beforeCell, from, to int64)) {
	for end := off + n; off < end; {
		start := off &^ (beforeCellLen - 1)
		next := min(start+beforeCellLen, end)
		if p := s.parts[off/beforePartLen]; p != nil {
			do(p, &p.cells[off%beforePartLen/beforeCellLen], off-start, next-start)
		}
		off = next
	}
}
