package ladder

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/culvert-io/culvert/internal/wc"
	"github.com/culvert-io/culvert/route"
)

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
	host     []byte         // what the host reads of two blocks
	block    []byte         // aligned memory for one read of the drive
}

type interval struct{ from, to uint64 }

func newSamples(seed [32]byte) *samples {
	s := &samples{rand: rand.NewChaCha8(seed), host: make([]byte, 2*placeBlock+placeSize), block: alignedBytes(4*hostPage, hostPage)}
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
	op.size, op.sized = size, true
	from, to := directRange(op, int64(t.Block), size)
	if to-from < placeSize {
		return
	}
	known := v.file(f)
	if !known.reads[t.ID].Load() || v.onTrial(t.ID, op, len(s.wide)) {
		s.wide = append(s.wide, v.prepareWide(r, s, op, i, from, to))
		return
	}
	first := len(s.places)
	s.choosePlaces(known, f, i, from, to)
	mem := v.view(r, op, false)
	if mem.storeSentinels(s.places[first:]) != nil {
		s.places = s.places[:first] // no sentinels, no sample
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
	places := s.of(i)
	if err := mem.loadPlaces(places); err != nil {
		return nil, level, err
	}
	for k := range places {
		p := &places[k]
		switch {
		case p.off+placeSize > op.Off+n: // the file has ended before it
		case p.known && p.got != p.want, !p.known && p.got == p.sentinel:
			return &mismatch{p.off, bytes.Clone(p.got[:]), bytes.Clone(p.want[:]), p.known}, level, nil
		case p.known:
			level = route.ArrivalSampled
		}
	}
	return nil, level, nil
}

// of are the places of op i.
func (s *samples) of(i int) []place {
	a := 0
	for a < len(s.places) && s.places[a].op != i {
		a++
	}
	b := a
	for b < len(s.places) && s.places[b].op == i {
		b++
	}
	return s.places[a:b]
}
