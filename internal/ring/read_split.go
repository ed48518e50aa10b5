package ring

import (
	"runtime"
	"time"
)

// minHalved is the size from which a read that waits for a disk may be halved.
const minSplit = 512 << 10

// compete decides whether an op is one read for a disk, and whether that goes in
// halves. On most machines it should, but not on all; began is zero where there is
// no choice.
func (r *Ring) chooseSplit(o *batch) (began time.Time) {
	o.oneChunk = r.singleColdRead(o.reqs)
	if !o.oneChunk || o.reqs[0].Len < minSplit {
		return began
	}
	o.split = r.splitReads.pick() == 1
	return time.Now()
}

// judge tells the contest how an op went that came through in full.
func (r *Ring) recordSplit(o *batch, began time.Time) {
	if began.IsZero() || o.res[0].Err != nil || o.res[0].N < o.reqs[0].Len {
		return
	}
	way := 0
	if o.split {
		way = 1
	}
	r.splitReads.add(way, o.res[0].N, time.Since(began))
}

// fillHalves reads a piece by O_DIRECT in two halves at once, and sends the one
// that comes first on its way to the GPU while the disk is at work on the other:
// the caller waits for half a copy instead of a whole one. What does not come
// through in full is left to read.
func (l *pipeline) readSplit(s *slot) {
	b := l.openUring()
	if b == nil {
		return
	}
	s.split()
	// The kernel completes reads on the thread that submitted them.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	q := &s.op.reqs[s.segments[0].req]
	for i := range s.segments {
		from, to, pos := s.segments[i].around(q, len(s.mem))
		if b.Read(q.Direct, s.mem[from:to], pos, uint64(i)) != nil {
			break
		}
	}
	for b.Busy() > 0 {
		if err := b.Submit(1); err != nil {
			l.dropUring(err)
			return
		}
		for _, d := range l.done[:b.Reap(l.done)] {
			p := &s.segments[d.User]
			if p.readDirectDone(q, len(s.mem), int64(d.Res)); p.got == p.n {
				l.send(s, p)
			}
		}
	}
}

// halve cuts the one part of a slot on a border of the file.
func (s *slot) split() {
	p := &s.segments[0]
	q := &s.op.reqs[p.req]
	pos := q.Off + p.off
	n := int(down(pos+int64(p.n/2), max(q.boundary(), cutUnit)) - pos)
	rest := *p
	rest.off, rest.at, rest.n = p.off+int64(n), p.at+n, p.n-n
	p.n = n
	s.segments = append(s.segments, rest)
}
