package storage

import (
	"slices"
	"sync"
)

const (
	// aheadStep is how much is asked for at a time, and aheadLead how far in front of
	// the readers: with sixteen threads and 4 MiB each, a disk fills the cache as fast
	// as it answers O_DIRECT, where plain reads reach two thirds of that.
	aheadStep = 4 << 20
	aheadLead = 16 * aheadStep
	// Behind the end of a request a reader that has been sequential for aheadRunning
	// gets as much as it has read so far, within these limits, as kernels do. The upper
	// one keeps several steps in flight: with two, a disk that needs many requests at a
	// time is idle while the reader copies.
	aheadRunning   = 2 * aheadStep
	aheadBeyond    = 2 * aheadStep
	aheadBeyondMax = 8 * aheadStep
)

// A readAhead decides which range of a file to ask the kernel for before another one
// is read. It follows one run of reads with rising offsets.
type readAhead struct {
	mu      sync.Mutex
	start   int64   // of the run
	upTo    int64   // [start, upTo) was asked for, or is being asked for
	read    int64   // up to here it was read
	pending []Range // being asked for
}

// A Range is a range of a file.
type Range struct{ From, To int64 }

func (b Range) overlaps(from, to int64) bool { return b.From < to && from < b.To }

// next returns the range to ask for before [off, off+n) is read; empty for none. The
// caller ends it with done. req is the request that it belongs to. cold reports that
// the page cache lacked some of the range itself. missing counts the bytes that it
// lacks of any range, -1 if the kernel does not tell.
func (r *readAhead) next(off, n int64, req Range, size int64, cold bool, missing func(from, to int64) int64) (from, to int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case off < r.start && r.start <= req.To && cold: // an earlier part of the same request came late
		from, to = off, r.start
		r.start = off
	case off >= r.start && off <= r.upTo:
		if cold && off+n <= r.upTo && !r.askedFor(off, off+n) && missing(off, off+n) > 0 {
			// It was dropped meanwhile, or the kernel did not do as it was asked.
			if off < r.read { // or else the run goes on
				r.start = off
			}
			r.upTo, r.read = off, off
		}
		from, to = r.extend(off, n, req, size)
	case cold:
		r.start, r.upTo, r.read = off, off, off
		from, to = r.extend(off, n, req, size)
	}
	r.read = max(r.read, off+n)
	if from >= to || missing(from, to) == 0 {
		return 0, 0
	}
	r.pending = append(r.pending, Range{from, to})
	return from, to
}

// extend moves the end of the run in front of a reader, by two steps at most: so the
// lead grows while each reader asks for as much as it reads and as much again.
func (r *readAhead) extend(off, n int64, req Range, size int64) (from, to int64) {
	end := req.To
	if r.start < req.From && r.upTo-r.start >= aheadRunning {
		end = max(end, off+n+min(max(off+n-r.start, aheadBeyond), aheadBeyondMax))
	}
	want := min(off+n+aheadLead, end, size)
	from, to = r.upTo, min(want, max(off+n, r.upTo+2*aheadStep))
	if end > req.To && off+n <= from && to < size { // small requests: whole steps
		to -= max(to-from, 0) % aheadStep
	}
	r.upTo = max(r.upTo, to)
	return from, to
}

func (r *readAhead) askedFor(from, to int64) bool {
	return slices.ContainsFunc(r.pending, func(b Range) bool { return b.overlaps(from, to) })
}

// done ends a range that next returned.
func (r *readAhead) done(from, to int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.Index(r.pending, Range{from, to}); i >= 0 {
		r.pending = slices.Delete(r.pending, i, i+1)
	}
}
