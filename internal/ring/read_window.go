package ring

import (
	"sync/atomic"

	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/internal/trace"
	"github.com/culvert-io/culvert/internal/wc"
)

// A chunk is copied only when all of it was read, and until then the copy engine may have
// nothing to do. A chunk that is read through its request's window, by stores of the CPU
// into GPU memory, uses the link at once and needs no copy.

// On an H200 (PCIe 5 x16, 2026-11-19, docs/performance.md), a thread stores about 6 GB/s
// through BAR1, and all together 34, which leaves no room on the link for copies. So windows
// must not take the threads that would give the copy engine work: with six of ten threads the
// queue stays empty and one long request at 40 GB/s, where copies alone reach 51. Short
// requests never keep the copy engine busy and need many windows: one caller with 4 MiB
// reaches 14.0 GB/s with six at a time, 9.5 with four, and 8.9 with none. Sixteen callers with
// 4 MiB gain 10 % if four are used however long the queue is; with 16 MiB they lose 1 %.
const (
	shortLen  = 8 << 20  // the longest request of the first kind
	middleLen = 32 << 20 // and of the second

	idleQueue = 4 << 20  // bytes that are queued for copies at most, while the copy engine may become idle
	busyQueue = 24 << 20 // and while it has enough to do for a while

	idleReaders, busyReaders, longReaders = 6, 4, 3
)

// windowReaders is how many threads may read through windows at a time, the one included
// that reads a chunk of a request of n bytes while so many bytes are queued for copies.
func windowReaders(n, queued int64) int {
	switch {
	case n <= shortLen && queued < idleQueue:
		return idleReaders
	case n <= shortLen, n <= middleLen && queued < busyQueue:
		return busyReaders
	case queued < idleQueue:
		return longReaders
	}
	return 0
}

// windowReads counts the threads that read through windows.
type windowReads struct{ threads atomic.Int32 }

// enter counts one more thread in, unless there are as many already.
func (w *windowReads) enter(most int) bool {
	if int(w.threads.Add(1)) <= most {
		return true
	}
	w.leave()
	return false
}

func (w *windowReads) leave() { w.threads.Add(-1) }

// readWindow reads the chunk in s through its request's window and reports whether it
// did. What the page cache does not have comes from a disk, which is faster with a slot:
// BAR1 memory takes no O_DIRECT.
func (p *pipeline) readWindow(s *slot) bool {
	seg := &s.segments[0]
	q := &s.batch.reqs[seg.req]
	if q.Window == nil || len(s.segments) > 1 || !q.asks() {
		return false
	}
	most := windowReaders(q.Len, p.copies.Load())
	if most == 0 {
		return false
	}
	p.files.choose(q, seg)
	if !seg.resident() || !p.windows.enter(most) {
		return false
	}
	defer p.windows.leave()
	p.files.readWindow(q, seg)
	p.trace.end(trace.Read, s.fileOff(), seg.got)
	return seg.sent
}

// resident reports whether the page cache has all of a segment, and had it before this
// pass over the file: what a pass brings there is measured by reads into slots.
func (seg *segment) resident() bool {
	return seg.known && seg.path == storage.Cached && seg.lacked == 0
}

// readWindow reads a segment into its request's window. If that fails, nothing was done:
// the read into a slot finds out whether the file is the cause or the mapping, which
// answers EFAULT when its GPU is gone.
func (f *fileIO) readWindow(q *Request, seg *segment) {
	f.readRest(q, seg, q.Window[seg.off:seg.off+int64(seg.n)])
	wc.Fence() // also after an error: some bytes may have arrived
	if seg.err != nil {
		seg.got, seg.err = 0, nil
		seg.retries++
		return
	}
	seg.window, seg.sent = seg.got, true
}
