package pcie

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// Dir says which way the bytes go, seen from the device.
type Dir uint8

const (
	Read  Dir = iota // the device reads memory
	Write            // the device writes memory
)

func (d Dir) String() string {
	if d == Read {
		return "DMA read"
	}
	return "DMA write"
}

// A Range is n bytes of bus addresses.
type Range struct {
	Bus uint64
	Len int
}

// A Port is a device's way to memory.
type Port interface {
	// Lend is LendAll of one range.
	Lend(bus uint64, n int, d Dir) (Loan, error)
	// LendAll lends the memory behind the ranges, in order, or nothing.
	LendAll(sg []Range, d Dir) (Loan, error)
}

// A Loan is memory in the hands of a device. It is a small value; copies stand
// for the same loan.
type Loan struct {
	l   *loan
	seq uint64
	f   *Fabric
}

// Segs are the bytes in the order of the bus addresses. They must not be
// touched after Return.
func (l Loan) Segs() [][]byte {
	if l.l == nil || l.l.seq.Load() != l.seq {
		return nil
	}
	return l.l.segs
}

// Len is the number of bytes lent.
func (l Loan) Len() int {
	if l.l == nil || l.l.seq.Load() != l.seq {
		return 0
	}
	return l.l.n
}

// Return ends the loan, of which the first moved bytes were used, and counts
// them. It fails, having ended the loan nevertheless, when moved is out of
// range or the device was unplugged meanwhile, and with [ErrReturned] when
// somebody ended the loan before.
func (l Loan) Return(moved int) error {
	if l.l == nil {
		return ErrReturned
	}
	l.f.cfg.Points.At("pcie.return", l.seq)
	if !l.l.seq.CompareAndSwap(l.seq, l.seq+1) {
		return ErrReturned
	}
	return l.l.end(moved)
}

// A part of a loan lies in one region.
type part struct {
	region *region
	n      int
	direct bool // a switch turns the requests round
}

// A loan is used again and again; seq is odd while nobody has it and grows with
// each change of hands, so that an old Loan does no harm.
type loan struct {
	seq   atomic.Uint64
	fn    *Function
	dir   Dir
	n     int
	segs  [][]byte
	parts []part
	gates []*gate
	holds []Hold
}

// A shelf holds loans that nobody has, for use again. A sync.Pool would drop
// them now and then.
type shelf struct {
	mu   sync.Mutex
	free []*loan
}

func (s *shelf) get(fn *Function, d Dir) *loan {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.free)
	if n == 0 {
		l := &loan{fn: fn, dir: d}
		l.seq.Store(1)
		return l
	}
	l := s.free[n-1]
	s.free = s.free[:n-1]
	l.dir, l.n = d, 0
	return l
}

func (s *shelf) put(l *loan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, l)
}

func (l *loan) end(moved int) error {
	fn, n, dir := l.fn, l.n, l.dir
	var err error
	if moved < 0 || moved > n {
		err = fmt.Errorf("%s: return %d of %d lent bytes: %w", fn.name, moved, n, ErrMalformed)
		moved = max(0, min(moved, n))
	}
	left := moved
	for i := range l.parts {
		k := min(left, l.parts[i].n)
		if k == 0 {
			break
		}
		fn.count(&l.parts[i], uint64(k), dir)
		left -= k
	}
	gone := fn.removed.Load()
	for _, p := range l.parts {
		gone = gone || p.region.owner != nil && p.region.owner.removed.Load()
	}
	l.release()
	if err == nil && gone {
		err = fmt.Errorf("%s: %v of %d bytes: %w", fn.name, dir, n, ErrRemoved)
	}
	return err
}

// release gives everything back, and the loan to its shelf.
func (l *loan) release() {
	for _, h := range l.holds {
		h.Release()
	}
	for _, g := range l.gates {
		g.leave()
	}
	l.fn.f.loans.Add(-1)
	clear(l.segs)
	clear(l.parts)
	clear(l.gates)
	clear(l.holds)
	l.segs, l.parts, l.gates, l.holds = l.segs[:0], l.parts[:0], l.gates[:0], l.holds[:0]
	l.fn.shelf.put(l)
}

// enter goes through a gate, once for a loan.
func (l *loan) enter(g *gate) bool {
	if n := len(l.gates); n > 0 && l.gates[n-1] == g {
		return true
	}
	if !g.enter() {
		return false
	}
	l.gates = append(l.gates, g)
	return true
}
