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
	if seg.chosen {
		return
	}
	seg.chosen = true
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
	missing := func(from, to int64) int64 {
		r, err := f.sys.Residency(q.Buffered, from, to-from)
		if err != nil {
			return -1
		}
		return lacks(r, to-from)
	}
	if seg.known {
		seg.lacked = q.stream().Lacks(pos, n, lacks(r, n), missing)
		q.stream().Found(n - seg.lacked)
	}
	f.readAhead(q, seg, missing)
}

// lacks is how many of n bytes the page cache does not have.
func lacks(r storage.Residency, n int64) int64 { return min((r.Pages-r.Cached)*page, n) }

// askDeferred asks for what went around the page cache to measure the storage.
func (f *fileIO) askDeferred(q *Request) {
	for _, r := range q.stream().Deferred() {
		q.stream().AskBehind(r.From, r.To, f.fetch(q), f.willNeed(q))
	}
}

// readAhead asks the kernel for what the readers will need next, so that the disk has
// many requests at a time and a read finds its pages.
func (f *fileIO) readAhead(q *Request, seg *segment, missing func(from, to int64) int64) {
	s := q.stream()
	from, to := s.Ahead(q.Off+seg.off, int64(seg.n), storage.Range{From: q.Off, To: q.Off + q.Len}, seg.path == storage.Fill, missing)
	if from >= q.Off+q.Len {
		s.AskBehind(from, to, f.fetch(q), f.willNeed(q))
		return
	}
	if s.Ask(from, to, f.fetch(q), f.willNeed(q)) {
		seg.path = storage.Fill // reads of its own pages may be in flight
	}
}

// fetch and willNeed keep the descriptor, not the request: what is asked for behind it may
// go on when it has ended, and its caller uses that memory for the next one.
func (f *fileIO) fetch(q *Request) func(off, n int64) error {
	fd := q.Buffered
	return func(off, n int64) error { return f.sys.Fetch(fd, off, n) }
}

func (f *fileIO) willNeed(q *Request) func(off, n int64) error {
	fd := q.Buffered
	return func(off, n int64) error { return f.sys.WillNeed(fd, off, n) }
}

// observe records a chunk of n bytes that was read, if any of it came from storage.
func (f *fileIO) observe(s *slot, n int64, began, ended time.Time) {
	seg := &s.segments[0]
	path := seg.path
	if path != storage.Around {
		path, n = storage.Fill, seg.lacked
	}
	if n > 0 {
		s.batch.reqs[seg.req].stream().Observe(path, n, began, ended)
	}
}

// cacheUse is what reading the segment did to the page cache. What the file system did not
// read with O_DIRECT was not there either.
func (seg *segment) cacheUse() route.CacheUse {
	u := route.CacheUse{Bypassed: int64(seg.direct)}
	through := int64(seg.got - seg.direct)
	if u.Bypassed > 0 {
		u.Why = seg.why
	}
	switch {
	case !seg.known:
		u.Unasked = through
	case seg.path == storage.Around:
		u.Filled = through
	default:
		u.Filled = min(seg.lacked, through)
		u.Hit = through - u.Filled
	}
	return u
}

// count counts a finished read.
func (q *Request) count(res *Result) {
	if q.Source != nil {
		res.Cache = route.CacheUse{}
	}
	if c := &res.Cache; !q.Write && q.asks() {
		q.stream().Count(c.Hit + c.Filled + c.Bypassed + c.Unasked)
	}
}
