package ring

import (
	"time"

	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/route"
)

// path asks the policy how to read a range of a request, of which the page cache has
// r. known reports whether the kernel told that.
func (f *fileIO) path(q *Request, off, n int64) (p storage.Path, why string, r storage.Residency, known bool) {
	if q.stream().Uncached() {
		return storage.Cached, "", storage.Residency{}, false
	}
	r, err := f.sys.Residency(q.Buffered, off, n)
	p, why = q.stream().Path(off, n, r, err == nil)
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
	if seg.path == storage.Around {
		if seg.why == storage.FastStorage {
			q.stream().WentAround(pos, n)
		}
		return
	}
	if s := q.stream(); seg.known && q.Direct >= 0 && !r.Dirty && s.Measure(n, time.Now()) {
		if seg.path == storage.Fill {
			s.Defer(storage.Range{From: pos, To: pos + n})
		}
		s.WentAround(pos, n)
		seg.path, seg.why = storage.Around, storage.Measuring
		return
	}
	f.askDeferred(q)
	f.readAhead(q, seg)
}

// askDeferred asks for what went around the page cache to measure the storage.
func (f *fileIO) askDeferred(q *Request) {
	for _, r := range q.stream().Deferred() {
		q.stream().Ask(r.From, r.To, nil, f.willNeed(q))
	}
}

// readAhead asks the kernel for what the readers will need next, so that the disk has
// many requests at a time and a read finds its pages.
func (f *fileIO) readAhead(q *Request, seg *segment) {
	s := q.stream()
	from, to, lacks := s.Ahead(q.Off+seg.off, int64(seg.n), storage.Range{From: q.Off, To: q.Off + q.Len}, seg.path == storage.Fill, func(from, to int64) int64 {
		r, err := f.sys.Residency(q.Buffered, from, to-from)
		if err != nil {
			return -1
		}
		return min((r.Pages-r.Cached)*page, to-from)
	})
	if from >= q.Off+q.Len {
		s.AskBehind(from, to, lacks, f.fetch(q), f.willNeed(q))
		return
	}
	if s.Ask(from, to, f.fetch(q), f.willNeed(q)) {
		seg.path, seg.asked = storage.Fill, lacks // reads of its own pages may be in flight
	}
}

func (f *fileIO) fetch(q *Request) func(off, n int64) error {
	return func(off, n int64) error { return f.sys.Fetch(q.Buffered, off, n) }
}

func (f *fileIO) willNeed(q *Request) func(off, n int64) error {
	return func(off, n int64) error { return f.sys.WillNeed(q.Buffered, off, n) }
}

// observe records a chunk of n bytes that was read from storage.
func (f *fileIO) observe(s *slot, n int64, began, ended time.Time) {
	seg := &s.segments[0]
	if seg.path == storage.Fill {
		n = seg.asked
	}
	s.batch.reqs[seg.req].stream().Observe(seg.path, n, began, ended)
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
