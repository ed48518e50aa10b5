package ring

import (
	"time"

	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/route"
)

// path asks the policy how to read a range of a request, of which the page cache has
// r. known reports whether the kernel told that.
func (f *fileIO) path(q *Request, off, n int64) (p storage.Path, why string, r storage.Residency, known bool) {
	r, err := f.sys.Residency(q.Buffered, off, n)
	p, why = q.stream().Path(r, err == nil)
	if q.Direct < 0 && p == storage.Around {
		p = storage.Fill
	}
	return p, why, r, err == nil
}

// choose chooses how to read a segment, once. What goes through the page cache is
// asked for first, together with what follows it.
func (f *fileIO) choose(q *Request, seg *segment) {
	if seg.known {
		return
	}
	pos, n := q.Off+seg.off, int64(seg.n)
	var r storage.Residency
	seg.path, seg.why, r, seg.known = f.path(q, pos, n)
	if seg.path == storage.Fill && seg.known && q.Direct >= 0 && q.stream().Measure(n, r) {
		seg.path, seg.why = storage.Around, storage.Measuring
	}
	if seg.path != storage.Around && f.readAhead(q, pos, n, seg.path == storage.Fill) {
		seg.path = storage.Fill // reads of its own pages may be in flight
	}
}

// readAhead asks the kernel for what the readers will need next, so that the disk has
// many requests at a time and a read finds its pages. It reports whether there was
// anything to ask for.
func (f *fileIO) readAhead(q *Request, pos, n int64, cold bool) (asked bool) {
	s := q.stream()
	from, to := s.Ahead(pos, n, storage.Range{From: q.Off, To: q.Off + q.Len}, cold, func(from, to int64) int64 {
		r, err := f.sys.Residency(q.Buffered, from, to-from)
		if err != nil {
			return -1
		}
		return min((r.Pages-r.Cached)*page, to-from)
	})
	return s.Ask(from, to, f.fetch(q), f.willNeed(q))
}

func (f *fileIO) fetch(q *Request) func(off, n int64) error {
	return func(off, n int64) error { return f.sys.Fetch(q.Buffered, off, n) }
}

func (f *fileIO) willNeed(q *Request) func(off, n int64) error {
	return func(off, n int64) error { return f.sys.WillNeed(q.Buffered, off, n) }
}

// observe records how long a chunk took that was read from storage. What went around
// the page cache only to measure that is read into it now: later reads find it there.
func (f *fileIO) observe(s *slot, n int, took time.Duration) {
	q, path := &s.batch.reqs[s.segments[0].req], s.segments[0].path
	q.stream().Observe(path, int64(n), took)
	for i := range s.segments {
		if seg := &s.segments[i]; seg.why == storage.Measuring {
			from := q.Off + seg.off
			q.stream().Ask(from, from+int64(seg.n), nil, f.willNeed(q))
		}
	}
}

// cacheUse is what reading the segment did to the page cache; which bytes were there
// before is counted by the request.
func (seg *segment) cacheUse() route.CacheUse {
	u := route.CacheUse{Bypassed: int64(seg.direct)}
	through := int64(seg.got - seg.direct)
	if u.Bypassed > 0 {
		u.Why = seg.why
	}
	if seg.known {
		u.Hit = through
	} else {
		u.Unasked = through
	}
	return u
}

// count divides the bytes of a finished read that went through the page cache into
// those that were there and those that were read into it.
func (q *Request) count(res *Result) {
	if q.Source != nil {
		res.Cache = route.CacheUse{}
	}
	if q.Write || !q.asks() {
		return
	}
	through := res.Cache.Hit
	res.Cache.Hit = 0
	q.stream().Count(&res.Cache, through)
}
