package ring

import (
	"errors"
	"io"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/storage"
)

// fileIO reads and writes segments of requests.
type fileIO struct {
	sys         syscalls
	slot        int64
	mapped      mappedWrites
	mappedReads mappedReads
	turns       writeTurns
}

// read reads the segments of a slot.
func (p *pipeline) read(s *slot) {
	switch {
	case s.coalesced && len(s.segments) >= minUring:
		p.readCoalesced(s)
	case s.batch.split && s.segments[0].n >= minSplit:
		p.readSplit(s)
	}
	for i := range s.segments {
		if seg := &s.segments[i]; seg.got < seg.n && seg.err == nil {
			p.files.read(&s.batch.reqs[seg.req], seg, s.mem)
		}
	}
}

// read reads what is missing of a segment into its place in mem.
func (f *fileIO) read(q *Request, seg *segment, mem []byte) {
	if seg.got == 0 && q.asks() {
		f.choose(q, seg)
		switch {
		case seg.path == storage.Around:
			f.readDirect(q, seg, mem)
		case seg.worthMapping():
			t := f.mappedReads.begin(q, seg, mem)
			f.readRest(q, seg, seg.place(mem))
			f.mappedReads.end(t, seg.got)
			return
		}
	}
	f.readRest(q, seg, seg.place(mem))
}

// place is the segment's part of a slot.
func (seg *segment) place(mem []byte) []byte { return mem[seg.at : seg.at+seg.n] }

// readRest reads what is missing of a segment through the page cache. p has room for
// all of the segment.
func (f *fileIO) readRest(q *Request, seg *segment, p []byte) {
	pos := q.Off + seg.off
	for seg.got < seg.n && seg.err == nil {
		n, err := f.pread(q, p[seg.got:], pos+int64(seg.got))
		switch {
		case errors.Is(err, unix.EINTR):
			seg.retries++
		case err != nil:
			seg.err = &Error{"read", pos + int64(seg.got), int64(seg.n - seg.got), q.Addr, err}
		case n == 0:
			return // the end of the file
		default:
			seg.got += n
			if seg.got < seg.n {
				seg.retries++
			}
		}
	}
}

// pread reads through the page cache, or from a source; 0 is the end.
func (f *fileIO) pread(q *Request, p []byte, off int64) (int, error) {
	if q.Source == nil {
		return f.sys.Pread(q.Buffered, p, off)
	}
	n, err := q.Source.ReadAt(p, off)
	if n > 0 || err == io.EOF {
		err = nil
	}
	return n, err
}

// singleColdRead reports a single read that fits into a slot and goes around the page
// cache. The kernel splits such a read for the disk, and a worker would come too late.
func (f *fileIO) singleColdRead(reqs []Request) bool {
	if len(reqs) != 1 {
		return false
	}
	q := &reqs[0]
	if q.Write || q.Direct < 0 || q.Len <= smallLen || q.Len > f.slot {
		return false
	}
	path, _, _, _ := f.path(q, q.Off, q.Len)
	return path == storage.Around
}

// readDirect reads the aligned range around a segment with O_DIRECT. It leaves to
// the page cache what follows a read that ended off the alignment, which is the end
// of the file or close to it, or everything if the file system rejects O_DIRECT.
func (f *fileIO) readDirect(q *Request, seg *segment, mem []byte) {
	align := q.align()
	from, to, pos := seg.around(q, len(mem))
	at := from
	for at < to {
		n, err := f.sys.Pread(q.Direct, mem[at:to], pos+at-from)
		if errors.Is(err, unix.EINTR) {
			seg.retries++
			continue
		}
		if directRejected(err) {
			seg.retries++
		} else if err != nil {
			seg.err = &Error{"read", pos + at - from, to - at, q.Addr, err}
		}
		if err != nil || n == 0 {
			break
		}
		at += int64(n)
		if at < to && at&(align-1) != 0 {
			break
		}
	}
	seg.readAround(q, len(mem), at-from)
}

// around is the aligned range around a segment in its slot, and where that range
// begins in the file.
func (seg *segment) around(q *Request, slot int) (from, to, pos int64) {
	from = down(int64(seg.at), q.align())
	to = min(up(int64(seg.at+seg.n), q.align()), int64(slot))
	return from, to, q.Off + seg.off - (int64(seg.at) - from)
}

// readAround records that n bytes of the aligned range were read with O_DIRECT. At
// the end of the file that is less than the range, and may be all of the segment.
func (seg *segment) readAround(q *Request, slot int, n int64) {
	from, _, _ := seg.around(q, slot)
	seg.got = int(min(max(from+n-int64(seg.at), 0), int64(seg.n)))
	seg.direct = seg.got
}

// directRejected reports an error that means "not with O_DIRECT" and not "not at
// all".
func directRejected(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP)
}
