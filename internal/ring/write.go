package ring

import (
	"errors"

	"golang.org/x/sys/unix"
)

// write writes a segment: the aligned middle with O_DIRECT if there is a descriptor
// for it, the ends through the page cache. The ends share no page with the middle,
// whose pages the kernel drops from the cache.
func (f *fileIO) write(q *Request, seg *segment, mem []byte) {
	pos := q.Off + seg.off
	if seg.mapped != nil {
		f.mapped.store(seg, mem)
	}
	end := pos + int64(seg.n)
	if from, to := up(pos, q.boundary()), down(end, q.boundary()); q.Direct >= 0 && from < to {
		f.writeTo(q.Buffered, q, seg, mem, from)
		before := seg.got
		f.writeTo(q.Direct, q, seg, mem, to)
		seg.direct = seg.got - before
	}
	f.writeTo(q.Buffered, q, seg, mem, end)
}

// writeTo writes through fd until the segment is written up to file offset end.
func (f *fileIO) writeTo(fd int, q *Request, seg *segment, mem []byte, end int64) {
	pos := q.Off + seg.off
	for seg.err == nil && pos+int64(seg.got) < end {
		at := pos + int64(seg.got)
		n, err := f.pwrite(fd, q, mem[seg.at+seg.got:seg.at+int(end-pos)], at)
		switch {
		case errors.Is(err, unix.EINTR):
			seg.retries++
		case fd == q.Direct && q.Source == nil && directRejected(err):
			seg.retries++
			return // the rest goes through the page cache
		case err != nil:
			seg.err = &Error{"write", at, end - at, q.Addr, err}
		case n == 0:
			seg.err = &Error{"write", at, end - at, q.Addr, unix.EIO}
		default:
			seg.got += n
			if at+int64(n) < end {
				seg.retries++
			}
			if fd == q.Direct && q.Source == nil && (at+int64(n))%q.align() != 0 {
				return // off the alignment: likewise
			}
		}
	}
}

func (f *fileIO) pwrite(fd int, q *Request, p []byte, off int64) (int, error) {
	if q.Source != nil {
		return q.Source.WriteAt(p, off)
	}
	if fd == q.Buffered && len(p) > smallLen {
		t, contended := f.turns.enter(fd)
		defer f.turns.leave(t)
		if contended {
			f.turns.warm(p)
		}
	}
	return f.sys.Pwrite(fd, p, off)
}

// largeWrite is the size from which a write reserves space and may be mapped.
const largeWrite = 8 << 20

// prepareWrites reserves space for large writes that extend a file, so that they fail
// before anything is moved, and maps those that do not.
func (f *fileIO) prepareWrites(b *batch) {
	for i := range b.reqs {
		q := &b.reqs[i]
		if !q.Write || q.Source != nil || b.prog[i].len < largeWrite {
			continue
		}
		if err := f.sys.Reserve(q.Buffered, q.Off, q.Len); err != nil {
			b.fail(i, 0, &Error{"reserve", q.Off, q.Len, q.Addr, err})
			continue
		}
		f.mapped.mapFile(q, &b.prog[i])
	}
}
