package ring

import (
	"runtime"

	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/internal/uring"
)

const (
	// minUring is the number of segments from which one system call for all of them
	// is faster than one for each.
	minUring = 8
	// uringDepth is how many reads a pipeline has in flight.
	uringDepth = 64
)

// readCoalesced reads small requests through io_uring, unless preads of cached pages
// are faster.
func (p *pipeline) readCoalesced(s *slot) {
	if p.warm(s, 0) && p.warm(s, len(s.segments)-1) || p.openUring() == nil {
		return
	}
	for i := range s.segments {
		if q := &s.batch.reqs[s.segments[i].req]; q.asks() {
			p.files.choose(q, &s.segments[i])
		}
	}
	p.readUring(s, false)
}

// readUring reads the segments of a slot through io_uring: one system call instead of
// one for each, and a disk sees all reads at once. With send it copies each segment as
// soon as it is there. fileIO.read repeats what comes back short or fails.
func (p *pipeline) readUring(s *slot, send bool) {
	// The kernel completes reads on the thread that submitted them.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	u := p.uring
	for next := 0; next < len(s.segments) || u.Busy() > 0; {
		for ; next < len(s.segments) && u.Busy() < u.Entries(); next++ {
			seg := &s.segments[next]
			q := &s.batch.reqs[seg.req]
			fd, from, to, pos := q.Buffered, int64(seg.at), int64(seg.at+seg.n), q.Off
			if seg.path == storage.Around {
				fd = q.Direct
				from, to, pos = seg.around(q, len(s.mem))
			}
			if u.Read(fd, s.mem[from:to], pos, uint64(next)) != nil {
				break
			}
		}
		if err := u.Submit((u.Busy() + 1) / 2); err != nil {
			p.dropUring(err)
			return
		}
		for _, d := range p.done[:u.Reap(p.done)] {
			seg := &s.segments[d.User]
			switch {
			case seg.path == storage.Around:
				seg.readAround(&s.batch.reqs[seg.req], len(s.mem), int64(d.Res))
				if send && seg.got == seg.n {
					p.send(s, seg)
				}
			case d.Res > 0:
				seg.got = int(d.Res)
			}
		}
	}
}

// warm reports whether the page cache has segment i.
func (p *pipeline) warm(s *slot, i int) bool {
	seg := &s.segments[i]
	q := &s.batch.reqs[seg.req]
	r, err := p.files.sys.Residency(q.Buffered, q.Off+seg.off, int64(seg.n))
	return err == nil && r.Cached >= r.Pages
}

func (p *pipeline) openUring() *uring.Ring {
	if p.triedUring || p.noUring {
		return p.uring
	}
	p.triedUring = true
	u, err := uring.New(uringDepth)
	if err != nil {
		p.log.Debug("ring: reading without io_uring", "error", err)
		return nil
	}
	p.uring, p.done = u, make([]uring.Done, uringDepth)
	return u
}

// dropUring continues without io_uring.
func (p *pipeline) dropUring(cause error) {
	p.log.Warn("ring: io_uring failed; continuing without", "error", cause)
	if err := p.uring.Close(); err != nil {
		p.log.Warn("ring: close io_uring", "error", err)
	}
	p.uring = nil
}
