package ring

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/crc32c"
)

// flush writes the parts of a slot out.
func (l *pipeline) write(s *slot) {
	for i := range s.segments {
		if p := &s.segments[i]; p.err == nil {
			l.r.write(&s.op.reqs[p.req], p, s.mem)
		}
	}
}

// write writes a part: the middle by O_DIRECT where there is one and the
// alignment allows, the ends through the page cache. They share no page with
// the middle, whose pages the kernel drops from the cache.
func (r *Ring) write(q *Request, p *segment, mem []byte) {
	pos := q.Off + p.off
	if q.Sum {
		p.crc = crc32c.Sum(mem[p.at : p.at+p.n])
	}
	if p.mapped != nil && r.storeRate.pay() {
		r.store(p, mem)
	}
	end := pos + int64(p.n)
	if from, to := up(pos, q.boundary()), down(end, q.boundary()); q.Direct >= 0 && from < to {
		r.writeTo(q.Buffered, q, p, mem, from)
		before := p.got
		r.writeTo(q.Direct, q, p, mem, to)
		p.direct = p.got - before
	}
	r.writeTo(q.Buffered, q, p, mem, end)
	if q.Sum && p.got < p.n {
		p.crc = crc32c.Sum(mem[p.at : p.at+p.got])
	}
}

// writeTo writes through fd until the part is written up to file offset end.
func (r *Ring) writeTo(fd int, q *Request, p *segment, mem []byte, end int64) {
	pos := q.Off + p.off
	for p.err == nil && pos+int64(p.got) < end {
		at := pos + int64(p.got)
		n, err := r.files.Pwrite(fd, mem[p.at+p.got:p.at+int(end-pos)], at)
		switch {
		case errors.Is(err, unix.EINTR):
			p.retries++
		case fd == q.Direct && directRefused(err):
			p.retries++
			return // the page cache takes the rest
		case err != nil:
			p.err = &Error{"write", at, end - at, q.Addr, err}
		case n == 0:
			p.err = &Error{"write", at, end - at, q.Addr, unix.EIO}
		default:
			p.got += n
			if at+int64(n) < end {
				p.retries++
			}
			if fd == q.Direct && (at+int64(n))%q.align() != 0 {
				return // off the alignment: likewise
			}
		}
	}
}
