package ring

import (
	"context"
	"testing"

	"pgregory.net/rapid"
)

// Whatever the requests of a batch are, their chunks contain every byte once, lie as
// O_DIRECT wants them, and do not touch each other in the slot. A request is cut
// only where it may be.
func TestBatchChunks(t *testing.T) {
	const slotLen = 1 << 20
	rapid.Check(t, func(t *rapid.T) {
		reqs := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Request {
			return Request{
				Write: rapid.Bool().Draw(t, "write"),
				Align: rapid.SampledFrom([]int{0, 512, 4096, 8192}).Draw(t, "align"),
				Off:   rapid.Int64Range(0, 20_000).Draw(t, "off"),
				Len:   rapid.SampledFrom([]int64{0, 1, 4096, 70_000, 300_000, slotLen, slotLen + 5, 3 << 20}).Draw(t, "len") + rapid.Int64Range(0, 9000).Draw(t, "more"),
			}
		}), 1, 12).Draw(t, "requests")
		o := newBatch(coalesceLen)
		o.reset(context.Background(), reqs, make([]Result, len(reqs)))
		s := &slot{mem: make([]byte, slotLen+page)}
		seen := make([]int64, len(reqs))
		for o.left > 0 {
			before := o.left
			o.take(s, rapid.Int64Range(minChunk, slotLen).Draw(t, "want"))
			checkPiece(t, o, s, seen)
			if taken := s.sum(); before-o.left != taken || taken == 0 {
				t.Fatalf("%d bytes left of %d, the chunk has %d", o.left, before, taken)
			}
			s.segments = s.segments[:0]
		}
		for i := range reqs {
			if seen[i] != reqs[i].Len {
				t.Errorf("request %d: %d of %d bytes", i, seen[i], reqs[i].Len)
			}
		}
	})
}

func (s *slot) sum() (n int64) {
	for i := range s.segments {
		n += int64(s.segments[i].n)
	}
	return n
}

func checkPiece(t *rapid.T, o *batch, s *slot, seen []int64) {
	t.Helper()
	end := int64(0)
	for i := range s.segments {
		p := &s.segments[i]
		q := &o.reqs[p.req]
		if p.off != seen[p.req] || q.Write != o.reqs[s.segments[0].req].Write {
			t.Fatalf("segment %d of request %d: %d bytes at %d after %d", i, p.req, p.n, p.off, seen[p.req])
		}
		seen[p.req] += int64(p.n)
		if s.coalesced {
			if int64(p.at) < end || p.at+p.n > len(s.mem) {
				t.Fatalf("coalesced segment %d at %d touches what ends at %d", i, p.at, end)
			}
			end = int64(p.at + p.n)
			continue
		}
		if from := down(int64(p.at), q.align()); from < end || p.at+p.n > len(s.mem) {
			t.Fatalf("segment %d at %d touches what ends at %d", i, p.at, end)
		}
		end = up(int64(p.at+p.n), q.align())
		pos := q.Off + p.off
		if int64(p.at)&(q.boundary()-1) != pos&(q.boundary()-1) {
			t.Fatalf("segment %d: offset %d lies at %d", i, pos, p.at)
		}
		if seen[p.req] < q.Len && (pos+int64(p.n))&(q.boundary()-1) != 0 {
			t.Fatalf("request %d is cut at %d", p.req, pos+int64(p.n))
		}
	}
}

// Requests of a batch fill slots, so that the copies of none are short.
func TestAppend(t *testing.T) {
	const slotLen = 4 << 20
	for _, size := range []int64{300 << 10, 1 << 20, 2 << 20, 5 << 20} {
		reqs := make([]Request, 64)
		for i := range reqs {
			reqs[i] = Request{Off: 8 + int64(i)*size, Len: size}
		}
		o := newBatch(coalesceLen)
		o.reset(context.Background(), reqs, make([]Result, len(reqs)))
		s := &slot{mem: make([]byte, slotLen+page)}
		for o.left > slotLen {
			s.segments = s.segments[:0]
			if o.take(s, slotLen); s.sum() < slotLen*3/4 && len(s.segments) < maxAppended {
				t.Errorf("requests of %d: a chunk of %d in %d segments", size, s.sum(), len(s.segments))
			}
		}
	}
}
