package ladder

import (
	"math/bits"
	"slices"
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

// A place is where a transfer is looked at. It is small: after a long read the caches
// have none of it.
type place struct {
	off    int64 // in the file
	op     int32
	known  bool // the host has read placeSize bytes here: samples.wants, at the same index
	wanted bool // it is reading them
	beside bool // it reads them together with those of the place before it in the list
}

// choosePlaces chooses a place in each step of a read, and for some of them one in a
// neighbouring block; these the host reads too.
func (s *samples) choosePlaces(host witness, i int, from, to int64) {
	n := min(max((to-from)/sentinelStep, 1), maxSentinels)
	every := max(n*compareStep/max(to-from, compareStep), 1)
	turn := s.below(every)
	for k := range n {
		at := from + s.inPart(to-from, k, n)
		s.placeAt(i, at, false)
		if k%every != turn {
			continue
		}
		first := len(s.places) - 1
		if at, ok := besideBlock(at, from, to); ok {
			s.placeAt(i, at, true)
		}
		s.readTogether(first, host.sample)
		s.places[first].wanted = !s.places[first].known
	}
}

// placeAt adds a place of an op. wants has room for it, and still bytes of an earlier one.
func (s *samples) placeAt(op int, off int64, beside bool) {
	s.places = append(s.places, place{off: off, op: int32(op), beside: beside})
	n := len(s.places)
	s.wants = slices.Grow(s.wants[:n-1], 1)[:n]
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
func (s *samples) below(n int64) int64 {
	hi, _ := bits.Mul64(s.rand.Uint64(), uint64(max(n, 1))) // a division would take longer
	return int64(hi)
}

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
			copy(s.wants[k][:], b[p.off-from:])
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
		host := s.ops[s.places[k].op].proof.host
		s.readTogether(k, func(b []byte, off int64) bool {
			return host.readBack(b, off, s.block) == nil
		})
	}
}
