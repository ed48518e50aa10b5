package ring

import (
	"log/slog"
	"time"

	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/internal/tune"
)

// minSplit is the size from which a cold read may be split.
const minSplit = 512 << 10

// splitReads chooses between reading a single cold request in two halves (the
// default) and as a whole. Halves were faster on three machines of four, by 7 to
// 17 %, and slower on the fourth, by 32 %: see docs/performance.md.
type splitReads struct {
	choice tune.Choice
	log    *slog.Logger
}

// choose decides for a batch that is a single cold read.
func (r *splitReads) choose(b *batch) {
	b.began = time.Time{}
	if !b.oneChunk || b.reqs[0].Len < minSplit {
		return
	}
	b.split = r.choice.Pick(b.reqs[0].Len) == tune.Default
	b.began = time.Now()
}

// record adds the time of such a batch, if all of it was read.
func (r *splitReads) record(b *batch) {
	if b.began.IsZero() || b.res[0].Err != nil || b.res[0].N < b.reqs[0].Len {
		return
	}
	method := tune.Alternative
	if b.split {
		method = tune.Default
	}
	if r.choice.Add(method, b.res[0].N, time.Since(b.began)) {
		r.log.Debug("ring: the faster cold read has changed", "split", r.choice.Faster() == tune.Default)
	}
}

// readSplit reads a chunk with O_DIRECT in two concurrent halves, and copies the one
// that arrives first while the disk reads the other: the caller waits for half a copy
// instead of a whole one.
func (p *pipeline) readSplit(s *slot) {
	if p.openUring() != nil {
		seg := &s.segments[0]
		p.files.choose(&s.batch.reqs[seg.req], seg)
		if seg.path != storage.Around {
			return
		}
		s.split()
		p.readUring(s, true)
	}
}

// split divides the only segment of a slot at a boundary of the file.
func (s *slot) split() {
	seg := &s.segments[0]
	q := &s.batch.reqs[seg.req]
	pos := q.Off + seg.off
	n := int(down(pos+int64(seg.n/2), max(q.boundary(), cutUnit)) - pos)
	rest := *seg
	rest.off, rest.at, rest.n = seg.off+int64(n), seg.at+n, seg.n-n
	seg.n = n
	s.segments = append(s.segments, rest)
}
