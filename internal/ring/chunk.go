package ring

import "github.com/culvert-io/culvert/gpu/kernels"

const (
	// gatherLen is the size up to which requests of a batch share a slot, where
	// slots are large.
	coalesceLen  = 64 << 10
	maxCoalesced = 512
	// gatherRoom bounds the memory that a lane takes on the GPU.
	coalesceBytes = 1 << 20
	// cutUnit keeps pieces in whole folios where the page cache has large ones.
	cutUnit = 64 << 10
	// maxPacked is how many requests share a piece that are copied one by one, and
	// minPacked the least of one that is worth to be cut off for it.
	maxAppended = 16
	minAppended = 256 << 10
)

// A part is what a piece holds of one request. A piece of a large request is
// one part; of a batch it may be the end of one request and the next ones, so
// that it is large in any case; a piece of gathered requests is many whole ones.
type segment struct {
	req    int
	off    int64 // in the request
	at     int   // in the slot
	n      int
	mapped []byte // the pages of the file to store into; nil for none
	sent   bool   // its copy is queued
	// The outcome.
	got     int // bytes that came through, from the start
	direct  int // of these, by O_DIRECT
	retries int
	crc     uint32
	err     error
}

// take cuts the next piece of about want bytes from the op into s, which holds
// nothing. The op has bytes left.
func (o *batch) take(s *slot, want int64) {
	for o.prog[o.next].cut == o.prog[o.next].len {
		o.next++
	}
	s.op = o
	s.coalesced = o.coalesces(o.next)
	if s.coalesced {
		o.coalesce(s, want)
	} else {
		o.cut(s, want)
		o.append(s, want)
	}
	o.busy++
}

// gathers reports whether request i shares its slot with others.
func (o *batch) coalesces(i int) bool {
	return len(o.reqs) > 1 && o.prog[i].cut == 0 && o.prog[i].len <= o.coalesceLen
}

// cut takes a part of one request that ends on a border, or where the request
// ends if that is near. In the slot the part lies as far from a border as it
// does in the file, so that there is room for the aligned range around it.
func (o *batch) cut(s *slot, want int64) {
	i := o.next
	q, p := &o.reqs[i], &o.prog[i]
	border := q.boundary()
	at := (q.Off + p.cut) & (border - 1)
	n, want := p.len-p.cut, up(want, max(border, cutUnit))
	if len(o.reqs) == 1 {
		want = even(n, want, max(border, cutUnit))
	}
	if room := down(int64(len(s.mem)), border); at+n > room || n > want+want/8 {
		n = min(want, room) - at
	}
	s.segments = append(s.segments, segment{req: i, off: p.cut, at: int(at), n: int(n), mapped: p.mapped.slice(p.cut, n)})
	o.took(i, n)
}

// pack adds the next requests to a piece that is smaller than it could be: short
// copies lose more of the link than they take.
func (o *batch) append(s *slot, want int64) {
	for len(s.segments) < maxAppended {
		last := &s.segments[len(s.segments)-1]
		i := last.req + 1
		if o.prog[last.req].cut < o.prog[last.req].len || i == len(o.reqs) {
			return
		}
		q, p := &o.reqs[i], &o.prog[i]
		if p.cut != 0 || p.len == 0 || q.Write != o.reqs[last.req].Write {
			return
		}
		border := q.boundary()
		at := up(int64(last.at+last.n), max(border, o.reqs[last.req].boundary())) + q.Off&(border-1)
		n := min(want, int64(len(s.mem))) - at
		if n < p.len {
			n = down(q.Off+n, max(border, cutUnit)) - q.Off
			if n < minAppended {
				return
			}
		}
		n = min(n, p.len)
		s.segments = append(s.segments, segment{req: i, at: int(at), n: int(n), mapped: p.mapped.slice(0, n)})
		o.next = i
		o.took(i, n)
	}
}

// even is a size, at most want, that cuts n without a small rest: a copy costs some
// microseconds whatever its size.
func even(n, want, unit int64) int64 {
	pieces := (n + want - 1) / want
	return min(up((n+pieces-1)/pieces, unit), want)
}

// gather takes whole requests of one direction.
func (o *batch) coalesce(s *slot, want int64) {
	write := o.reqs[o.next].Write
	var end, taken int64
	room := min(int64(len(s.mem)), coalesceBytes)
	for ; o.next < len(o.reqs) && len(s.segments) < maxCoalesced && taken < want; o.next++ {
		i := o.next
		q, p := &o.reqs[i], &o.prog[i]
		if p.cut == p.len {
			continue // refused or empty
		}
		if !o.coalesces(i) || q.Write != write {
			break
		}
		at := place(end, q)
		if at+p.len+int64(len(s.segments)+2)*kernels.PieceSize > room {
			break // never the first: see Ring.gatherLen
		}
		s.segments = append(s.segments, segment{req: i, at: int(at), n: int(p.len)})
		end = at + p.len
		taken += p.len
		o.took(i, p.len)
	}
	o.next = min(o.next, len(o.reqs)-1)
}

// place is where a gathered request starts in the slot: on a border that suits
// the GPU's wide loads, or as O_DIRECT wants it.
func place(end int64, q *Request) int64 {
	if q.Write && q.Direct >= 0 {
		return up(end, q.boundary()) + q.Off&(q.boundary()-1)
	}
	return up(end, 64)
}

func (o *batch) took(i int, n int64) {
	o.prog[i].cut += n
	o.left -= n
	o.share += n
}
