package ladder

import (
	"bytes"
	"cmp"
	"encoding/binary"
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
	begin     time.Time
	sentinel  uint64 // what is put into memory before the reads; nothing can guess it
	reads     []sampledRead
	firsts    []*provedFile   // files whose first read is one of them
	pairs     []pair          // of all reads, one after the other
	got       [placeSize]byte // what GPU memory has at one place
	spans     []interval
	others    []interval // memory of reads in flight, if some of it is that of these reads, and spans
	disturbed bool       // by a later read into the same memory; guarded by the prover's mutex
	rand      *rand.ChaCha8
	ops       []Op           // whose places are being read from the drive
	cold      sync.WaitGroup // until they are read
	readCold  func()         // readUnknown, made once: a go statement with arguments allocates
	host      []byte         // what the host reads of two blocks
	block     []byte         // aligned memory for one read of the drive
}

// A sampledRead is where one read of a batch is looked at: widely, or at a sentinel in
// each step and at some pairs of places, or, if it is on trial and longer than what is
// compared widely, both.
type sampledRead struct {
	wide        *wideProof
	mem         view
	size        int64 // of the file, before; -1 if it is not known
	steps       steps // none: the read is not looked at
	first, last int   // its pairs
	shared      bool  // another read has some of the memory: only the rest is looked at
	err         error // why it cannot be looked at
}

type interval struct{ from, to uint64 }

func newSamples(seed [32]byte) *samples {
	s := &samples{rand: rand.NewChaCha8(seed), host: make([]byte, 2*placeBlock+placeSize), block: alignedBytes(4*hostPage, hostPage)}
	s.readCold = s.readUnknown
	return s
}

// A mismatch is a place where GPU memory and file differ.
type mismatch struct {
	off       int64
	got, want []byte
	known     bool // want was read; otherwise the sentinel is still there
	short     bool // or the file ends before off
}

func (m *mismatch) String() string {
	if m.short {
		return fmt.Sprintf("the file ends before offset %d", m.off)
	}
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
	s.begin, s.reads, s.firsts, s.pairs, s.spans = v.now(), s.reads[:0], s.firsts[:0], s.pairs[:0], s.spans[:0]
	v.launch(s, ops)
	s.sentinel = s.rand.Uint64()
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
	clear(s.reads)
	clear(s.firsts)
	v.pool.Put(s)
}

// launch finds reads in flight to the same memory. A sentinel of one would look like
// a lie about the other, so the later one has none there.
func (v *prover) launch(s *samples, ops []Op) {
	for i := range ops {
		s.spans = append(s.spans, memoryOf(&ops[i]))
	}
	if len(s.spans) > 1 {
		slices.SortFunc(s.spans, func(a, b interval) int { return cmp.Compare(a.from, b.from) })
	}
	contends := false
	for i := 1; i < len(s.spans); i++ {
		contends = contends || s.spans[i].from < s.spans[i-1].to
	}
	s.others, s.disturbed = s.others[:0], false
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, o := range v.flying {
		if overlap(s.spans, o.spans) {
			contends, o.disturbed = true, true
			s.others = append(s.others, o.spans...)
		}
	}
	if contends {
		s.others = append(s.others, s.spans...)
	}
	v.flying = append(v.flying, s)
}

func memoryOf(op *Op) interval {
	a := uint64(op.Mem.Addr())
	return interval{a, a + op.Mem.Len}
}

// alone is a part of an op's memory that no other read in flight has: what is before each
// of the others, or behind it.
func (s *samples) alone(op *Op) interval {
	all := memoryOf(op)
	rest, itself := all, false
	for _, o := range s.others {
		switch {
		case o == all && !itself:
			itself = true // once, in spans: a second one is another read
		case o.to <= rest.from || o.from >= rest.to:
		case o.from > rest.from && (o.to >= rest.to || o.from-rest.from >= rest.to-o.to):
			rest.to = o.from
		default:
			rest.from = min(o.to, rest.to)
		}
	}
	return rest
}

func (v *prover) wasDisturbed(s *samples) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return s.disturbed
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
// of the file. Of a range without a whole block it is all, and of a required read: the
// drive moves its ends to memory of the route.
func directRange(op *Op, t *Traits, size int64) (from, to int64) {
	from, to = op.Off, min(op.end(), size)
	if block := int64(t.Block); block > 1 && !op.strict {
		if f, e := (from+block-1)/block*block, to/block*block; f < e {
			return f, e
		}
	}
	return from, max(from, to)
}

// prepare chooses the places of read i and puts sentinels there.
func (v *prover) prepare(r Route, t *Traits, s *samples, op *Op, i int) {
	s.reads = append(s.reads, sampledRead{size: -1})
	known := v.fileOf(op)
	if known == nil || !op.Kind.OnDevice() {
		return
	}
	rd := &s.reads[i]
	size, err := known.host.size()
	if err != nil {
		rd.err = err
		return
	}
	op.size, op.sized = size, true
	rd.size = size
	from, to := directRange(op, t, size)
	if len(s.others) > 0 {
		from, to = s.cutShared(rd, op, from, to)
	}
	if from >= to {
		return
	}
	if to-from < placeSize || !rd.shared && s.isFirst(known, t.ID) || v.onTrial(t.ID, op, s.countWide()) {
		rd.wide = v.prepareWide(r, s, op, from, to)
		// Between the parts of a longer one there is room for a fault that the places of a
		// trusted read would find.
		if to-from <= wideBytes || rd.wide.err != nil {
			return
		}
	}
	rd.steps = newSteps(from, to, readSentinels(to-from), s.rand.Uint64())
	rd.first = len(s.pairs)
	pairs := s.choosePairs(from, to, readPairs(to-from))
	for k := range pairs {
		s.readPair(&pairs[k], known.host.sample)
	}
	rd.last = len(s.pairs)
	rd.mem = v.view(r, op, false)
	if rd.wide != nil {
		rd.err = rd.wide.keepWords(&rd.mem, &rd.steps)
	}
	if rd.err == nil {
		rd.err = rd.mem.putSentinel(s.sentinel, &rd.steps)
	}
}

// cutShared leaves of a range of the file what goes to memory of this read alone.
func (s *samples) cutShared(rd *sampledRead, op *Op, from, to int64) (int64, int64) {
	rest := s.alone(op)
	rd.shared = rest != memoryOf(op)
	at := op.Off - int64(op.Mem.Addr())
	return max(from, at+int64(rest.from)), min(to, at+int64(rest.to))
}

// isFirst reports whether a read of the batch is the first of its file by a route.
func (s *samples) isFirst(known *provedFile, id route.ID) bool {
	if known.reads[id].Load() || slices.Contains(s.firsts, known) {
		return false
	}
	s.firsts = append(s.firsts, known)
	return true
}

func (s *samples) countWide() (n int) {
	for i := range s.reads {
		if s.reads[i].wide != nil {
			n++
		}
	}
	return n
}

// compare compares the places of op i in its first n bytes.
func (s *samples) compare(op *Op, n int64, i int) (found *mismatch, level route.Arrival, err error) {
	level = route.ArrivalReported
	rd, end := &s.reads[i], op.Off+n
	if rd.err != nil {
		return nil, level, rd.err
	}
	if rd.wide != nil {
		found, level, err = rd.wide.compare(op, n)
		if rd.shared && level == route.ArrivalProved {
			level = route.ArrivalSampled
		}
		if found != nil || err != nil || rd.steps.count == 0 {
			return found, level, err
		}
	}
	defer wc.Guard(wc.Arm(), &err) // one for all places: it costs more than a load
	rd.mem.beginLoads()
	if found, err = rd.findSentinel(s.sentinel, end); found != nil || err != nil {
		return found, level, err
	}
	for k := rd.first; k < rd.last; k++ {
		p := &s.pairs[k]
		if min(p.at[0], p.at[1])+placeSize > end { // the file has ended before it
			continue
		}
		if !p.known {
			return nil, level, p.err
		}
		if found, err = s.comparePair(&rd.mem, p, end); found != nil || err != nil {
			return found, level, err
		}
		if level != route.ArrivalProved {
			level = route.ArrivalSampled
		}
	}
	return nil, level, nil
}

// findSentinel finds one that a read up to end has left.
func (rd *sampledRead) findSentinel(sentinel uint64, end int64) (*mismatch, error) {
	var room [maxSentinels]int64
	var words [maxSentinels]uint64
	places := rd.steps.places(&room)
	if err := rd.mem.words(words[:], places); err != nil {
		return nil, err
	}
	for k, at := range places {
		if words[k] == sentinel && at+placeSize <= end {
			return &mismatch{off: at, got: binary.LittleEndian.AppendUint64(nil, sentinel)}, nil
		}
	}
	return nil, nil
}

// comparePair compares GPU memory with what the host has read, as far as end.
func (s *samples) comparePair(mem *view, p *pair, end int64) (*mismatch, error) {
	for i, at := range p.at {
		if at+placeSize > end {
			continue
		}
		if err := mem.loadNext(s.got[:], uint64(at-mem.op.Off)); err != nil {
			return nil, err
		}
		if s.got != p.want[i] {
			return firstDifference(bytes.Clone(s.got[:]), bytes.Clone(p.want[i][:]), at), nil
		}
	}
	return nil, nil
}
