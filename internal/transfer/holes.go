package transfer

import (
	"errors"

	"golang.org/x/sys/unix"
)

// minHole is the smallest hole that is kept. Smaller ones are copied as zeros: each
// range is a request of its own.
const minHole = 64 << 10

// ranges tells which parts of a source have data.
type ranges interface {
	// next returns the first range with data at or after off, at most limit bytes of it;
	// n is 0 if there is no more.
	next(off, limit int64) (start, n int64)
	// now is the size at this moment.
	now() (int64, error)
}

// solid is a source without holes whose size does not change.
type solid int64

func (s solid) next(off, limit int64) (start, n int64) { return off, max(0, min(limit, int64(s)-off)) }

func (s solid) now() (int64, error) { return int64(s), nil }

// extents finds the parts of a file that have data.
type extents struct {
	fd   int
	size int64
	end  int64 // of the range that was found last
}

// next returns the first range with data at or after off, at most limit bytes of it;
// n is 0 if the rest of the file is a hole. Ranges begin and end at whole blocks.
func (e *extents) next(off, limit int64) (start, n int64) {
	if off >= e.end {
		off, e.end = e.find(off, limit)
	}
	return off, max(0, min(limit, e.end-off))
}

// find looks for a range. A file system that knows no holes has one range.
func (e *extents) find(off, limit int64) (start, end int64) {
	start, err := unix.Seek(e.fd, off, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) {
		return e.size, e.size
	}
	if err != nil {
		return off, e.size
	}
	start = max(off, start/block*block)
	end, next := start, start
	for err == nil && next-end < minHole && end-start < limit {
		if end, err = unix.Seek(e.fd, next, unix.SEEK_HOLE); err != nil {
			return start, e.size
		}
		next, err = unix.Seek(e.fd, end, unix.SEEK_DATA)
	}
	return start, min(e.size, (end+block-1)/block*block)
}

func (e *extents) now() (int64, error) {
	var st unix.Stat_t
	err := unix.Fstat(e.fd, &st)
	return st.Size, err
}
