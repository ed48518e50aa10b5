package ladder

import "math/bits"

const (
	// placeSize is what is compared at a place: a cache line, which costs as much as
	// one byte of it.
	placeSize = 64
	// placeBlock is what drives lie about: blocks. Where the host reads, it reads in two
	// neighbouring ones, because a drive that repeats one block leaves that one right.
	placeBlock = 4096
	// sentinelStep is how much of a read has one sentinel, at most.
	sentinelStep = 64 << 10
	maxSentinels = 64
	// compareStep is how much of a read has a pair of places that the host reads too. The
	// first step of a read has none if there are others: a pair costs a system call, and the
	// second one would be 0.2 % of a read of 1 MiB.
	compareStep = 512 << 10
	maxPairs    = 64
)

// steps are equal parts of a range, each with a random place. The places are computed
// from the seed whenever they are needed: after a long read the caches have nothing of a
// list of them.
type steps struct {
	from, to, step, count int64
	seed                  uint64
}

func newSteps(from, to, count int64, seed uint64) steps {
	return steps{from, to, (to - from) / count / placeSize * placeSize, count, seed}
}

// place is the place in step k. The last step ends with the range.
func (s *steps) place(k int64) int64 {
	at, n := s.from+k*s.step, s.step
	if k == s.count-1 {
		n = s.to - at
	}
	return at + s.below(k, n/placeSize)*placeSize
}

// places are all of them.
func (s *steps) places(room *[maxSentinels]int64) []int64 {
	for k := range s.count {
		room[k] = s.place(k)
	}
	return room[:s.count]
}

// below is the k-th random number below n, or 0.
func (s *steps) below(k, n int64) int64 {
	x := s.seed + uint64(k)*0x9e3779b97f4a7c15 // SplitMix64
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	hi, _ := bits.Mul64(x^x>>31, uint64(max(n, 1))) // a division would take longer
	return int64(hi)
}

// A pair is two places in neighbouring blocks, at which GPU memory is compared with what
// the host reads.
type pair struct {
	at    [2]int64 // in the file; the same twice in a range of one block
	known bool     // the host has read want
	err   error    // why it has not
	want  [2][placeSize]byte
}

// beside is the place next to the block of another one, on the nearer side that is in
// [from, to): the host reads what is between them too, 1 KiB on average. In a range of
// one block it is the place itself.
func beside(at, from, to int64) int64 {
	block := at / placeBlock * placeBlock
	near, far := block-placeSize, block+placeBlock
	if at-block >= placeBlock/2 {
		near, far = far, near
	}
	for _, a := range [...]int64{near, far} {
		if a >= from && a+placeSize <= to {
			return a
		}
	}
	return at
}

// choosePairs chooses a pair of places in each of count equal parts of [from, to), and
// returns them.
func (s *samples) choosePairs(from, to, count int64) []pair {
	first, parts := len(s.pairs), newSteps(from, to, count, s.rand.Uint64())
	for k := range count {
		at := parts.place(k)
		s.pairs = append(s.pairs, pair{at: [2]int64{at, beside(at, from, to)}})
	}
	return s.pairs[first:]
}

// readSentinels is how many sentinels a read of n bytes has.
func readSentinels(n int64) int64 { return min((n+sentinelStep-1)/sentinelStep, maxSentinels) }

// readPairs is how many pairs of places a read of n bytes has.
func readPairs(n int64) int64 { return min(max((n-1)/compareStep, 1), maxPairs) }

// readPair has the host read both places of a pair, in one call.
func (s *samples) readPair(p *pair, read func(b []byte, off int64) bool) {
	from := min(p.at[0], p.at[1])
	b := s.host[:max(p.at[0], p.at[1])+placeSize-from]
	if p.known = read(b, from); p.known {
		for i, at := range p.at {
			copy(p.want[i][:], b[at-from:])
		}
	}
}

// startCold begins to read from the drive what the page cache does not have, while the
// route moves the bytes.
func (s *samples) startCold(ops []Op) {
	for k := range s.pairs {
		if !s.pairs[k].known {
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

func (s *samples) readUnknown() {
	defer s.cold.Done()
	for i := range s.reads {
		for k := s.reads[i].first; k < s.reads[i].last; k++ {
			if p := &s.pairs[k]; !p.known {
				s.readPair(p, func(b []byte, off int64) bool {
					p.err = s.ops[i].proof.host.readBack(b, off, s.block)
					return p.err == nil
				})
			}
		}
	}
}
