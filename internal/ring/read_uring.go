package ring

import (
	"runtime"

	"github.com/culvert-io/culvert/internal/uring"
)

const (
	// minUring is the number of segments from which one system call for all of them
	// is faster than one for each.
	minUring = 8
	// uringDepth is how many reads a pipeline has in flight.
	uringDepth = 64
)

// readUring reads the segments of a slot through io_uring: one system call instead
// of one for each, and a disk sees all reads at once. fileIO.read repeats the reads
// that come back short or fail.
func (p *pipeline) readUring(s *slot) {
	if p.warm(s, 0) && p.warm(s, len(s.segments)-1) {
		return // preads of cached pages are faster
	}
	u := p.openUring()
	if u == nil {
		return
	}
	// The kernel completes reads on the thread that submitted them.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for next := 0; next < len(s.segments) || u.Busy() > 0; {
		for ; next < len(s.segments) && u.Busy() < u.Entries(); next++ {
			seg := &s.segments[next]
			q := &s.batch.reqs[seg.req]
			if u.Read(q.Buffered, s.mem[seg.at:seg.at+seg.n], q.Off, uint64(next)) != nil {
				break
			}
		}
		if err := u.Submit((u.Busy() + 1) / 2); err != nil {
			p.dropUring(err)
			return
		}
		for _, d := range p.done[:u.Reap(p.done)] {
			if d.Res > 0 {
				s.segments[d.User].got = int(d.Res)
			}
		}
	}
}

// warm reports whether the page cache has segment i.
func (p *pipeline) warm(s *slot, i int) bool {
	seg := &s.segments[i]
	q := &s.batch.reqs[seg.req]
	return p.io.sys.Warm(q.Buffered, q.Off+seg.off, int64(seg.n))
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
