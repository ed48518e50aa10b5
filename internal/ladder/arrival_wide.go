package ladder

import (
	"bytes"
	"encoding/binary"

	"github.com/culvert-io/culvert/route"
)

const (
	// wideBytes is how much of a transfer is compared widely: all of a shorter one, and
	// of a longer one widePart bytes in each sixteenth. Each part is a read of the drive.
	wideBytes    = 1 << 20
	widePartSize = 64 << 10
)

// A wideProof compares a read widely: the first one of a file by a route, and the first
// ones of its stack.
type wideProof struct {
	mem   view
	parts []widePart
	old   []byte // what the parts held
	words []keptWord
	err   error // the memory could not be filled
	host  func(b []byte, off int64) error
}

type widePart struct {
	off  int64
	n    int
	fill uint32
}

// A keptWord is what memory held where a sentinel is.
type keptWord struct {
	off int64 // in the file
	old [8]byte
}

// prepareWide fills the memory that will be compared, so that bytes of an earlier read
// are not taken for those of this one.
func (v *prover) prepareWide(r Route, s *samples, op *Op, from, to int64) *wideProof {
	w := &wideProof{mem: v.view(r, op, true), parts: wideParts(s, from, to)}
	w.host = v.fileOf(op).host.read
	for k := range w.parts {
		p := &w.parts[k]
		old := make([]byte, p.n)
		if w.err = w.mem.load(old, uint64(p.off-op.Off)); w.err != nil {
			break
		}
		w.old = append(w.old, old...)
		if w.err = w.mem.fill(uint64(p.off-op.Off), p.n, p.fill); w.err != nil {
			break
		}
	}
	return w
}

// keepWords remembers what the memory holds where sentinels will be. Those in a part have
// what it was filled with; restore puts the part back after them.
func (w *wideProof) keepWords(mem *view, st *steps) error {
	var room [maxSentinels]int64
	for _, at := range st.places(&room) {
		k := keptWord{off: at}
		if err := mem.load(k.old[:], uint64(at-mem.op.Off)); err != nil {
			return err
		}
		w.words = append(w.words, k)
	}
	return nil
}

// restore puts back what the memory held behind the first n bytes of the op: a read
// that failed or ended early leaves it alone.
func (w *wideProof) restore(op *Op, n int64) {
	for _, k := range w.words {
		if skip := max(op.Off+n-k.off, 0); skip < int64(len(k.old)) {
			_ = w.mem.store(uint64(k.off+skip-op.Off), k.old[skip:])
		}
	}
	old := w.old
	for _, p := range w.parts {
		if len(old) < p.n {
			return
		}
		if skip := max(op.Off+n-p.off, 0); skip < int64(p.n) {
			_ = w.mem.store(uint64(p.off+skip-op.Off), old[skip:p.n]) // memory that is gone needs nothing
		}
		old = old[p.n:]
	}
}

// wideParts are the ranges that are compared.
func wideParts(s *samples, from, to int64) (parts []widePart) {
	if to-from <= wideBytes {
		return []widePart{{from, int(to - from), uint32(s.rand.Uint64())}}
	}
	const n = wideBytes / widePartSize
	for k := range int64(n) {
		a, b := from+(to-from)*k/n, from+(to-from)*(k+1)/n
		off := a + int64(s.rand.Uint64()%uint64(b-a-widePartSize+1))
		parts = append(parts, widePart{off, widePartSize, uint32(s.rand.Uint64())})
	}
	return parts
}

// fill repeats a word in n bytes of the op's memory.
func (w *view) fill(off uint64, n int, word uint32) error {
	b := binary.LittleEndian.AppendUint32(nil, word)
	return w.store(off, bytes.Repeat(b, (n+3)/4)[:n])
}

// compare compares all parts in the first n bytes of the op.
func (w *wideProof) compare(op *Op, n int64) (*mismatch, route.Arrival, error) {
	if w.err != nil {
		return nil, route.ArrivalReported, w.err
	}
	level := route.ArrivalReported
	for _, p := range w.parts {
		k := min(int64(p.n), op.Off+n-p.off)
		if k <= 0 {
			continue
		}
		got, want := make([]byte, k), make([]byte, k)
		if err := w.mem.load(got, uint64(p.off-op.Off)); err != nil {
			return nil, level, err
		}
		if err := w.host(want, p.off); err != nil {
			return nil, level, err
		}
		if m := firstDifference(got, want, p.off); m != nil {
			return m, level, nil
		}
		level = route.ArrivalProved
	}
	return nil, level, nil
}

// firstDifference is a mismatch of up to placeSize bytes, or nil.
func firstDifference(got, want []byte, off int64) *mismatch {
	if bytes.Equal(got, want) {
		return nil
	}
	at := 0
	for got[at] == want[at] {
		at++
	}
	end := min(at+placeSize, len(got))
	return &mismatch{off: off + int64(at), got: got[at:end], want: want[at:end], known: true}
}
