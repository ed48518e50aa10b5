package ring

import (
	"github.com/culvert-io/culvert/gpu/kernels"
	"github.com/culvert-io/culvert/internal/storage"
)

const (
	// coalesceLen is the size up to which requests of a batch are coalesced, if
	// slots are large enough.
	coalesceLen  = 64 << 10
	maxCoalesced = 512
	// coalesceBytes is the memory that a pipeline uses on the GPU.
	coalesceBytes = 1 << 20
	// cutUnit keeps chunks in whole folios where the page cache has large ones.
	cutUnit = 64 << 10
	// maxAppended is how many requests that are copied one by one share a chunk,
	// and minAppended the least of a request that is worth splitting it for.
	maxAppended = 16
	minAppended = 256 << 10
)

// A segment is a chunk's range of one request. A chunk of a large request is one
// segment. In a batch, a chunk may contain the end of one request and the next ones,
// so that it is large in any case. A chunk of coalesced requests has many whole ones.
type segment struct {
	req    int
	off    int64 // in the request
	at     int   // in the slot
	n      int
	mapped []byte // the file's pages to store into; nil for none
	sent   bool   // its copy is queued, or it needs none
	// The outcome.
	got     int // bytes that came through, from the start
	direct  int // of these, with O_DIRECT
	window  int // or through the request's window
	path    storage.Path
	why     string // of a read with O_DIRECT
	chosen  bool   // path is set, and known is
	known   bool   // the page cache was asked, and answered
	lacked  int64  // bytes that the page cache lacked before this pass over the file
	retries int
	err     error
}

// take cuts the next chunk of about want bytes into s, which is empty. The batch has
// bytes left.
func (b *batch) take(s *slot, want int64) {
	for b.prog[b.next].cut == b.prog[b.next].len {
		b.next++
	}
	s.batch = b
	s.coalesced = b.coalesces(b.next)
	if s.coalesced {
		b.coalesce(s, want)
	} else {
		b.cut(s, want)
		b.append(s, want)
	}
	b.busy++
}

// coalesces reports whether request i shares its slot and its copy with others.
func (b *batch) coalesces(i int) bool {
	return len(b.reqs) > 1 && b.prog[i].cut == 0 && b.prog[i].len <= b.coalesceLen
}

// cut takes a segment of one request. It ends on a boundary, or with the request if
// that is near. Its position in the slot, modulo the boundary, is that in the file,
// so that the slot has room for the aligned range around it.
func (b *batch) cut(s *slot, want int64) {
	i := b.next
	q, p := &b.reqs[i], &b.prog[i]
	boundary := q.boundary()
	at := (q.Off + p.cut) & (boundary - 1)
	n, want := p.len-p.cut, up(want, max(boundary, cutUnit))
	if len(b.reqs) == 1 {
		want = even(n, want, max(boundary, cutUnit))
	}
	if room := down(int64(len(s.mem)), boundary); at+n > room || n > want+want/8 {
		n = min(want, room) - at
	}
	s.segments = append(s.segments, segment{req: i, off: p.cut, at: int(at), n: int(n), mapped: p.mapped.slice(p.cut, n)})
	b.took(i, n)
}

// append adds the next requests to a chunk that is smaller than it could be, because
// short copies waste link time.
func (b *batch) append(s *slot, want int64) {
	for len(s.segments) < maxAppended {
		last := &s.segments[len(s.segments)-1]
		i := last.req + 1
		if b.prog[last.req].cut < b.prog[last.req].len || i == len(b.reqs) {
			return
		}
		q, p := &b.reqs[i], &b.prog[i]
		if p.cut != 0 || p.len == 0 || q.Write != b.reqs[last.req].Write {
			return
		}
		boundary := q.boundary()
		at := up(int64(last.at+last.n), max(boundary, b.reqs[last.req].boundary())) + q.Off&(boundary-1)
		n := min(want, int64(len(s.mem))) - at
		if n < p.len {
			n = down(q.Off+n, max(boundary, cutUnit)) - q.Off
			if n < minAppended {
				return
			}
		}
		n = min(n, p.len)
		s.segments = append(s.segments, segment{req: i, at: int(at), n: int(n), mapped: p.mapped.slice(0, n)})
		b.next = i
		b.took(i, n)
	}
}

// even returns a size, at most want, that divides n without a small rest: a copy
// costs some microseconds whatever its size.
func even(n, want, unit int64) int64 {
	chunks := (n + want - 1) / want
	return min(up((n+chunks-1)/chunks, unit), want)
}

// coalesce takes whole requests of one direction.
func (b *batch) coalesce(s *slot, want int64) {
	write := b.reqs[b.next].Write
	var end, taken int64
	room := min(int64(len(s.mem)), coalesceBytes)
	for ; b.next < len(b.reqs) && len(s.segments) < maxCoalesced && taken < want; b.next++ {
		i := b.next
		q, p := &b.reqs[i], &b.prog[i]
		if p.cut == p.len {
			continue // rejected or empty
		}
		if !b.coalesces(i) || q.Write != write {
			break
		}
		at := position(end, q)
		if at+p.len+int64(len(s.segments)+2)*kernels.SegmentSize > room {
			break // never the first: see batch.coalesceLen
		}
		s.segments = append(s.segments, segment{req: i, at: int(at), n: int(p.len)})
		end = q.after(at + p.len)
		taken += p.len
		b.took(i, p.len)
	}
	b.next = min(b.next, len(b.reqs)-1)
}

// position is where a coalesced request starts in the slot: aligned for the GPU's
// wide loads, or as O_DIRECT requires.
func position(end int64, q *Request) int64 {
	if q.mayBypass() {
		return up(end, q.boundary()) + q.Off&(q.boundary()-1)
	}
	return up(end, 64)
}

// after is where the next request may begin if q ends at end: behind the aligned range
// around it.
func (q *Request) after(end int64) int64 {
	if q.mayBypass() {
		return up(end, q.boundary())
	}
	return end
}

// mayBypass reports whether a small request may use O_DIRECT.
func (q *Request) mayBypass() bool {
	return q.Direct >= 0 && (q.Write || q.stream().FillsNothing())
}

func (b *batch) took(i int, n int64) {
	b.prog[i].cut += n
	b.left -= n
	b.share += n
}
