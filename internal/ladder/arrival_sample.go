package ladder

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/culvert-io/culvert/internal/wc"
	"github.com/culvert-io/culvert/route"
)

const (
	// placeSize is what is compared at a place: a cache line, which costs as much as
	// one byte of it.
	placeSize = 64
	// sentinelStep is how much of a read has one sentinel, compareStep how much has one
	// place that the host reads too: that costs a system call.
	sentinelStep = 64 << 10
	compareStep  = 256 << 10
	maxSentinels = 64
)

// A place is a few bytes of a read, filled with a sentinel before it.
type place struct {
	off      int64 // in the file
	op       int
	sentinel [placeSize]byte
	want     [placeSize]byte // what the host reads there
	known    bool            // want is known
	wanted   bool            // want is being read
}

// samples are the places of a batch of reads.
type samples struct {
	begin    time.Time
	places   []place
	wide     []wideProof
	spans    []interval
	contends bool // with another read in flight: memory may have its sentinels
	rand     *rand.ChaCha8
	ops      []Op           // whose places are being read from the drive
	cold     sync.WaitGroup // until they are read
	readCold func()         // readWanted, made once: a go statement with arguments allocates
	got      [placeSize]byte
	block    []byte // aligned memory for one read of the drive
}

type interval struct{ from, to uint64 }

func newSamples(seed [32]byte) *samples {
	s := &samples{rand: rand.NewChaCha8(seed), block: alignedBytes(hostPage, hostPage)}
	s.readCold = s.readWanted
	return s
}

// A mismatch is a place where GPU memory and file differ.
type mismatch struct {
	off       int64
	got, want []byte
	known     bool // want was read; otherwise the sentinel is still there
}

func (m *mismatch) String() string {
	if !m.known {
		return fmt.Sprintf("at offset %d of the file, GPU memory still has the %d bytes that were put there before the read", m.off, len(m.got))
	}
	at := 0
	for at < len(m.got)-1 && m.got[at] == m.want[at] {
		at++
	}
	n := min(8, len(m.got)-at)
	return fmt.Sprintf("at offset %d GPU memory has % x, the file % x", m.off+int64(at), m.got[at:at+n], m.want[at:at+n])
}

// begin puts sentinels where a batch of reads will put its bytes.
func (v *prover) begin(r Route, t *Traits, ops []Op) *samples {
	s := v.pool.Get().(*samples)
	s.begin, s.places, s.wide, s.spans = v.now(), s.places[:0], s.wide[:0], s.spans[:0]
	v.launch(s, ops)
	if s.contends {
		return s
	}
	for i := range ops {
		v.prepare(r, t, s, &ops[i], i)
	}
	wc.Fence()
	s.startCold(ops)
	return s
}

// end makes the samples available again.
func (v *prover) end(s *samples) {
	v.mu.Lock()
	v.flying = slices.DeleteFunc(v.flying, func(o *samples) bool { return o == s })
	v.mu.Unlock()
	clear(s.wide)
	v.pool.Put(s)
}

// launch finds reads in flight to the same memory. A sentinel of one would look like
// a lie about the other, so the later one has none.
func (v *prover) launch(s *samples, ops []Op) {
	for i := range ops {
		a := uint64(ops[i].Mem.Addr())
		s.spans = append(s.spans, interval{a, a + ops[i].Mem.Len})
	}
	slices.SortFunc(s.spans, func(a, b interval) int { return int(int64(a.from - b.from)) })
	s.contends = false
	for i := 1; i < len(s.spans); i++ {
		s.contends = s.contends || s.spans[i].from < s.spans[i-1].to
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, o := range v.flying {
		s.contends = s.contends || overlap(s.spans, o.spans)
	}
	v.flying = append(v.flying, s)
}

// overlap reports whether two sorted lists have a byte in common.
func overlap(a, b []interval) bool {
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0].to <= b[0].from:
			a = a[1:]
		case b[0].to <= a[0].from:
			b = b[1:]
		default:
			return true
		}
	}
	return false
}

// directRange is the part of a read that the drive moves: whole blocks, up to the end
// of the file. Of a range without a whole block it is all.
func directRange(op *Op, block, size int64) (from, to int64) {
	from, to = op.Off, min(op.end(), size)
	if block > 1 {
		if f, e := (from+block-1)/block*block, to/block*block; f < e {
			return f, e
		}
	}
	return from, max(from, to)
}

// prepare chooses the places of one read and puts sentinels there.
func (v *prover) prepare(r Route, t *Traits, s *samples, op *Op, i int) {
	f := op.file()
	if f == nil || !op.Kind.OnDevice() {
		return
	}
	size, err := f.Size()
	if err != nil {
		return
	}
	from, to := directRange(op, int64(t.Block), size)
	if to-from < placeSize {
		return
	}
	if !v.file(f).reads[t.ID].Load() {
		s.wide = append(s.wide, v.prepareWide(r, s, op, i, from, to))
		return
	}
	v.choosePlaces(s, op, i, from, to)
	mem := v.view(r, op, false)
	for k := range s.places {
		if p := &s.places[k]; p.op == i && mem.store(uint64(p.off-op.Off), p.sentinel[:]) != nil {
			s.places = s.places[:k] // no sentinel, no sample
			return
		}
	}
}

// choosePlaces chooses a place in each step of a read, and which of them the host
// reads.
func (v *prover) choosePlaces(s *samples, op *Op, i int, from, to int64) {
	n := min(max((to-from)/sentinelStep, 1), maxSentinels)
	every := max(n*compareStep/max(to-from, compareStep), 1)
	turn := int64(s.rand.Uint64() % uint64(every))
	for k := range n {
		a, b := from+(to-from)*k/n, from+(to-from)*(k+1)/n
		p := place{op: i, off: a + int64(s.rand.Uint64()%uint64(max((b-a)/placeSize, 1)))*placeSize}
		word := s.rand.Uint64()
		for w := 0; w < placeSize; w += 8 {
			binary.LittleEndian.PutUint64(p.sentinel[w:], word)
		}
		if k%every == turn {
			p.known = readCached(op.file(), p.want[:], p.off)
			p.wanted = !p.known
		}
		s.places = append(s.places, p)
	}
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
		if p := &s.places[k]; p.wanted {
			f := s.ops[p.op].file()
			p.known = f.Direct() >= 0 && readDrive(f, f.Direct(), p.want[:], p.off, s.block) == nil
		}
	}
}

// compare compares the places of op i in its first n bytes.
func (s *samples) compare(v *prover, r Route, op *Op, n int64, i int) (*mismatch, route.Arrival, error) {
	for k := range s.wide {
		if w := &s.wide[k]; w.op == i {
			return w.compare(op, n)
		}
	}
	level := route.ArrivalReported
	mem := v.view(r, op, false)
	for k := range s.places {
		p := &s.places[k]
		if p.op != i || p.off+placeSize > op.Off+n {
			continue
		}
		if err := mem.load(s.got[:], uint64(p.off-op.Off)); err != nil {
			return nil, level, err
		}
		switch {
		case p.known && s.got != p.want, !p.known && s.got == p.sentinel:
			return &mismatch{p.off, bytes.Clone(s.got[:]), bytes.Clone(p.want[:]), p.known}, level, nil
		case p.known:
			level = route.ArrivalSampled
		}
	}
	return nil, level, nil
}
