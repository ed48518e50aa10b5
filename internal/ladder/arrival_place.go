package ladder

import (
	"encoding/binary"
	"slices"

	"github.com/culvert-io/culvert/internal/storage"
)

const (
	// placeSize is what is compared at a place: a cache line, which costs as much as
	// one byte of it.
	placeSize = 64
	// placeBlock is what drives lie about: blocks. Where the host reads, it reads in two
	// neighbouring ones, because a drive that repeats one block leaves that one right.
	placeBlock = 4096
	// sentinelStep is how much of a read has one sentinel, compareStep how much has two
	// places that the host reads too: that costs a system call.
	sentinelStep = 64 << 10
	compareStep  = 512 << 10
	maxSentinels = 64
)

// A place is a few bytes of a read, filled with a sentinel before it.
type place struct {
	off      int64 // in the file
	op       int
	sentinel [placeSize]byte
	got      [placeSize]byte // what GPU memory has there
	want     [placeSize]byte // what the host reads there
	known    bool            // want is known
	wanted   bool            // want is being read
	beside   bool            // the host reads it together with the place before it in the list
}

// choosePlaces chooses a place in each step of a read, and for some of them one in a
// neighbouring block; these the host reads too.
func (s *samples) choosePlaces(p *provedFile, f *storage.File, i int, from, to int64) {
	n := min(max((to-from)/sentinelStep, 1), maxSentinels)
	every := max(n*compareStep/max(to-from, compareStep), 1)
	turn := int64(s.rand.Uint64() % uint64(every))
	for k := range n {
		at := from + s.inPart(to-from, k, n)
		s.sentinelAt(i, at, false)
		if k%every != turn {
			continue
		}
		first := len(s.places) - 1
		if at, ok := besideBlock(at, from, to); ok {
			s.sentinelAt(i, at, true)
		}
		s.readTogether(first, func(b []byte, off int64) bool { return p.readSample(f, b, off) })
		s.places[first].wanted = !s.places[first].known
	}
}

// sentinelAt adds a place with a sentinel that nothing can guess.
func (s *samples) sentinelAt(op int, off int64, beside bool) {
	p := s.placeAt(off, beside)
	p.op = op
	word := s.rand.Uint64()
	for w := 0; w < placeSize; w += 8 {
		binary.LittleEndian.PutUint64(p.sentinel[w:], word)
	}
}

// placeAt adds a place. Its bytes are those of an earlier one: to clear them would cost
// as much as to fill them.
func (s *samples) placeAt(off int64, beside bool) *place {
	n := len(s.places)
	s.places = slices.Grow(s.places, 1)[:n+1]
	p := &s.places[n]
	p.off, p.op, p.known, p.wanted, p.beside = off, 0, false, false, beside
	return p
}

// inPart chooses a place in part k of n bytes.
func (s *samples) inPart(n, k, parts int64) int64 {
	a, b := n*k/parts, n*(k+1)/parts
	return a + s.below((b-a)/placeSize)*placeSize
}

// besideBlock is the place next to the block of another one, on the nearer side that is
// in [from, to): the host reads what is between them too, 1 KiB on average.
func besideBlock(at, from, to int64) (int64, bool) {
	block := at / placeBlock * placeBlock
	near, far := block-placeSize, block+placeBlock
	if at-block >= placeBlock/2 {
		near, far = far, near
	}
	for _, a := range [...]int64{near, far} {
		if a >= from && a+placeSize <= to {
			return a, true
		}
	}
	return 0, false
}

// below is a random number below n, or 0.
func (s *samples) below(n int64) int64 { return int64(s.rand.Uint64() % uint64(max(n, 1))) }

// readTogether has the host read place k and the one beside it, in one call.
func (s *samples) readTogether(k int, read func(b []byte, off int64) bool) {
	last := k
	if k+1 < len(s.places) && s.places[k+1].beside {
		last++
	}
	from, to := span(s.places[k : last+1])
	if b := s.host[:to-from]; read(b, from) {
		for ; k <= last; k++ {
			p := &s.places[k]
			p.known = true
			copy(p.want[:], b[p.off-from:])
		}
	}
}

// span is the range that covers places.
func span(places []place) (from, to int64) {
	from, to = places[0].off, places[0].off+placeSize
	for _, p := range places[1:] {
		from, to = min(from, p.off), max(to, p.off+placeSize)
	}
	return from, to
}

// startCold begins to read from the drive what the page cache does not have, while the
// route moves the bytes.
func (s *samples) startCold(ops []Op) {
	for k := range s.places {
		if s.places[k].wanted {
			s.ops = ops
			s.cold.Add(1)
			go s.readCold()
			return
		}
	}
}

// waitCold waits until that is done.
func (s *samples) waitCold() {
	s.cold.Wait()
	s.ops = nil
}

func (s *samples) readWanted() {
	defer s.cold.Done()
	for k := range s.places {
		if !s.places[k].wanted {
			continue
		}
		f := s.ops[s.places[k].op].file()
		s.readTogether(k, func(b []byte, off int64) bool {
			return f.Direct() >= 0 && readDrive(f, f.Direct(), b, off, s.block) == nil
		})
	}
}
