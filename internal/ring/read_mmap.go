package ring

import (
	"errors"
	"log/slog"
	"time"

	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/internal/tune"
)

// mappedReads chooses, for long reads of what the page cache has, between pread (the
// default) and copying from a mapping of the file, whichever has been faster.
//
// pread marks every folio as accessed. At the second mark since it came to the cache,
// writing being the first, the kernel moves the folio to another list, under one lock
// for all threads: 38 ms for a GB of single pages, which is 26 GB/s with any number of
// threads. So the first load of a model that was just put into tmpfs, which has single
// pages, took twice the time of the next ones. A mapping that is read sequentially
// marks nothing: twelve threads read 53 GB/s from it, where preads reach 27 the first
// time and 63 later (tmpfs, Linux 6.18, an H200 machine). One mapping must serve the
// whole file: with one for each chunk it is 32.
type mappedReads struct {
	sys    syscalls
	log    *slog.Logger
	choice tune.Choice
}

const (
	// minMappedRead is the size from which a mapping is worth a system call after which
	// other cores must forget the addresses.
	minMappedRead = 2 << 20
	// earlyMappedReads is how many of the first reads try the mapping: a model is
	// loaded once.
	earlyMappedReads = 2
)

func (m *mappedReads) init(sys syscalls, log *slog.Logger) {
	m.sys, m.log, m.choice.Early = sys, log, earlyMappedReads
}

// A timedRead is a read that counts for the choice, unless began is zero.
type timedRead struct {
	method tune.Method
	began  time.Time
}

// begin reads a segment from a mapping, if that is the method of choice. What is missing
// afterwards pread reads, or finds out why it cannot; then comes end.
func (m *mappedReads) begin(q *Request, seg *segment, mem []byte) timedRead {
	t := timedRead{m.choice.Pick(int64(seg.n)), time.Now()}
	if t.method == tune.Default {
		return t
	}
	switch err := m.sys.CopyMapped(q.stream(), mem[seg.at:seg.at+seg.n], q.Off+seg.off); {
	case err == nil:
		seg.got = seg.n
	case errors.Is(err, errNotMapped):
		return timedRead{}
	default:
		seg.retries++
	}
	return t
}

// handicap is what the time of a mapped read is multiplied with. Where the kernel's lists
// are no obstacle both take about as long, but a mapping disturbs other threads: with it,
// later loads of cached files reached 42 to 46 GB/s, by pread 46 to 47. Where they are,
// it takes half the time.
const handicap = 1.4

// end records how long a read of n bytes took.
func (m *mappedReads) end(t timedRead, n int) {
	if !t.began.IsZero() {
		m.add(t.method, n, time.Since(t.began))
	}
}

func (m *mappedReads) add(method tune.Method, n int, took time.Duration) {
	if method == tune.Alternative {
		took = time.Duration(handicap * float64(took))
	}
	if m.choice.Add(method, int64(n), took) {
		m.log.Debug("ring: the faster read of cached pages has changed", "mapped", m.choice.Faster() == tune.Alternative)
	}
}

// worthMapping reports a segment that may be read from a mapping.
func (seg *segment) worthMapping() bool {
	return seg.known && seg.path == storage.Cached && seg.n >= minMappedRead
}

// errNotMapped is an error for files that are not to be mapped at all.
var errNotMapped = errors.New("file cannot be read from a mapping")

// CopyMapped reads from a mapping.
func (kernel) CopyMapped(s *storage.Stream, p []byte, off int64) error {
	if !faultsRecoverable() {
		return errNotMapped
	}
	r, ok := s.Mapped(off, int64(len(p)))
	if !ok {
		return errNotMapped
	}
	return errors.Join(copyGuarded(p, r.Bytes()), r.Drop())
}
