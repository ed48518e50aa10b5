package ring

import (
	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/route"
)

// path asks the policy how to read a range of a request. known reports whether the
// kernel told what the page cache has of it.
func (f *fileIO) path(q *Request, off, n int64) (p storage.Path, why route.CacheReason, known bool) {
	r, err := f.sys.Residency(q.Buffered, off, n)
	p, why = q.stream().Path(n, r, err == nil)
	if q.Direct < 0 && p == storage.Around {
		p = storage.Fill
	}
	return p, why, err == nil
}

// choose chooses how to read a segment, once. What goes through the page cache is
// asked for first, together with what follows it.
func (f *fileIO) choose(q *Request, seg *segment) {
	if seg.known {
		return
	}
	pos, n := q.Off+seg.off, int64(seg.n)
	seg.path, seg.why, seg.known = f.path(q, pos, n)
	if seg.path != storage.Around && f.readAhead(q, pos, n, seg.path == storage.Fill) {
		seg.path = storage.Fill // its own pages may be on their way
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
			return 0
		}
		return min((r.Pages-r.Cached)*page, to-from)
	})
	return s.Ask(from, to, func(off, n int64) error { return f.sys.WillNeed(q.Buffered, off, n) })
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
