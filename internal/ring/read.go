package ring

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/crc32c"
)

// fill reads the parts of a slot.
func (l *pipeline) read(s *slot) {
	switch {
	case s.coalesced && len(s.segments) >= minUring:
		l.readBatch(s)
	case s.op.split && s.segments[0].n >= minSplit:
		l.readSplit(s)
	}
	for i := range s.segments {
		p := &s.segments[i]
		q := &s.op.reqs[p.req]
		if p.got < p.n && p.err == nil {
			l.r.read(q, p, s.mem)
		}
		if q.Sum {
			p.crc = crc32c.Sum(s.mem[p.at : p.at+p.got])
		}
	}
}

// filled is how many bytes the parts hold.
func (s *slot) filled() (n int) {
	for i := range s.segments {
		n += s.segments[i].got
	}
	return n
}

// read reads what is missing of a part into its place in mem.
func (r *Ring) read(q *Request, p *segment, mem []byte) {
	pos := q.Off + p.off
	// For a small request a look whether it is cold would cost too much.
	if p.got == 0 && q.Direct >= 0 && q.Len > smallLen && !r.files.Warm(q.Buffered, pos, int64(p.n)) {
		r.readDirect(q, p, mem)
	}
	for p.got < p.n && p.err == nil {
		n, err := r.files.Pread(q.Buffered, mem[p.at+p.got:p.at+p.n], pos+int64(p.got))
		switch {
		case errors.Is(err, unix.EINTR):
			p.retries++
		case err != nil:
			p.err = &Error{"read", pos + int64(p.got), int64(p.n - p.got), q.Addr, err}
		case n == 0:
			return // the end of the file
		default:
			p.got += n
			if p.got < p.n {
				p.retries++
			}
		}
	}
}

// fromDisk reports a single read that fits into a slot and is for the disk to
// answer: it is the kernel that cuts such a one for the disk, and a helper would
// come when it is over.
func (r *Ring) singleColdRead(reqs []Request) bool {
	if len(reqs) != 1 {
		return false
	}
	q := &reqs[0]
	return !q.Write && q.Direct >= 0 && q.Len > smallLen && q.Len <= r.sizing.slot && !r.files.Warm(q.Buffered, q.Off, q.Len)
}

// readDirect reads the aligned range around a part by O_DIRECT, as far as that
// goes. What it leaves is the page cache's: the rest behind a read that ended
// off the alignment, which is the end of the file or nearly so, or everything
// where the file system refuses.
func (r *Ring) readDirect(q *Request, p *segment, mem []byte) {
	align := q.align()
	from, to, pos := p.around(q, len(mem))
	at := from
	for at < to {
		n, err := r.files.Pread(q.Direct, mem[at:to], pos+at-from)
		if errors.Is(err, unix.EINTR) {
			p.retries++
			continue
		}
		if directRefused(err) {
			p.retries++
		} else if err != nil {
			p.err = &Error{"read", pos + at - from, to - at, q.Addr, err}
		}
		if err != nil || n == 0 {
			break
		}
		at += int64(n)
		if at < to && at&(align-1) != 0 {
			break
		}
	}
	p.readDirectDone(q, len(mem), at-from)
}

// around is the aligned range around a part: in its slot, and where it begins in
// the file.
func (p *segment) around(q *Request, slot int) (from, to, pos int64) {
	from = down(int64(p.at), q.align())
	to = min(up(int64(p.at+p.n), q.align()), int64(slot))
	return from, to, q.Off + p.off - (int64(p.at) - from)
}

// came notes what reading the aligned range around a part by O_DIRECT has brought.
// Where the file ends that is less than the range, and may be all of the part.
func (p *segment) readDirectDone(q *Request, slot int, n int64) {
	from, _, _ := p.around(q, slot)
	p.got = int(min(max(from+n-int64(p.at), 0), int64(p.n)))
	p.direct = p.got
}

// refused reports an error that says "not by O_DIRECT" rather than "not at all".
func directRefused(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP)
}
