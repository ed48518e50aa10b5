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

// samples are the places of a batch of reads.
type samples struct {
	begin    time.Time
	sentinel uint64 // what is put into memory before the reads; nothing can guess it
	places   []place
	wants    [][placeSize]byte // what the host reads at those of the places that are known
	got      [placeSize]byte   // what GPU memory has at one of them
	mems     []view            // of the ops
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
	s.begin, s.places, s.wide, s.spans, s.mems = v.now(), s.places[:0], s.wide[:0], s.spans[:0], s.mems[:0]
	v.launch(s, ops)
	if s.contends {
		return s
	}
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
	clear(s.wide)
	clear(s.mems)
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
	s.mems = append(s.mems, view{})
	known := v.fileOf(op)
	if known == nil || !op.Kind.OnDevice() {
		return
	}
	size, err := known.host.size()
	if err != nil {
		return
	}
	op.size, op.sized = size, true
	from, to := directRange(op, int64(t.Block), size)
	if to-from < placeSize {
		return
	}
	if !known.reads[t.ID].Load() || v.onTrial(t.ID, op, len(s.wide)) {
		s.wide = append(s.wide, v.prepareWide(r, s, op, i, from, to))
		return
	}
	first := len(s.places)
	s.choosePlaces(known.host, i, from, to)
	s.mems[i] = v.view(r, op, false)
	if s.mems[i].putSentinel(s.sentinel, s.places[first:]) != nil {
		s.places = s.places[:first] // no sentinels, no sample
	}
}

// compare compares the places of op i in its first n bytes.
func (s *samples) compare(op *Op, n int64, i int) (found *mismatch, level route.Arrival, err error) {
	for k := range s.wide {
		if w := &s.wide[k]; w.op == i {
			return w.compare(op, n)
		}
	}
	found, level = nil, route.ArrivalReported
	if s.contends {
		return nil, level, nil
	}
	mem := &s.mems[i]
	defer wc.Guard(wc.Arm(), &err) // one for all places: it costs more than a load
	mem.beginLoads()
	for k := range s.places {
		p := &s.places[k]
		if int(p.op) != i || p.off+placeSize > op.Off+n { // or the file has ended before it
			continue
		}
		if found, err = s.compareAt(mem, k); found != nil || err != nil {
			return found, route.ArrivalReported, err
		}
		if p.known {
			level = route.ArrivalSampled
		}
	}
	return nil, level, nil
}

// compareAt looks at GPU memory at place k. Where the host has read too, it must have the
// same bytes, elsewhere no sentinel any more.
func (s *samples) compareAt(mem *view, k int) (*mismatch, error) {
	p := &s.places[k]
	at := uint64(p.off - mem.op.Off)
	if !p.known {
		if word, err := mem.word(at); word != s.sentinel || err != nil {
			return nil, err
		}
		return &mismatch{off: p.off, got: binary.LittleEndian.AppendUint64(nil, s.sentinel)}, nil
	}
	if err := mem.loadNext(s.got[:], at); err != nil || s.got == s.wants[k] {
		return nil, err
	}
	return firstDifference(bytes.Clone(s.got[:]), bytes.Clone(s.wants[k][:]), p.off), nil
}
