package ring

import (
	"time"

	"github.com/culvert-io/culvert/internal/trace"
)

// A tracer records the pieces of transfers, if the process is traced. It belongs to
// one goroutine at a time.
type tracer struct {
	buf    trace.Buffer
	on     bool          // since begin
	began  time.Duration // of the piece
	copied time.Duration // when the last copy had ended
}

// begin begins a piece, and returns the time.
func (t *tracer) begin() time.Duration {
	if t.on = t.buf.On(); !t.on {
		return 0
	}
	t.began = trace.Now()
	return t.began
}

// end ends a piece of n bytes, at off in the file. Another may follow at once.
func (t *tracer) end(k trace.Kind, off int64, n int) {
	if t.on && n > 0 {
		now := trace.Now()
		t.buf.Piece(trace.Piece{Kind: k, Begin: t.began, End: now, Off: off, Bytes: int64(n)})
		t.began = now
	}
}

// waited ends the wait for the copies of a slot. A copy begins when it is queued and
// the one before it has ended. Its end is when that was noticed.
func (t *tracer) waited(s *slot) {
	if !t.on {
		return
	}
	end := trace.Now()
	t.buf.Piece(trace.Piece{Kind: trace.Wait, Begin: t.began, End: end, Off: s.fileOff()})
	t.buf.Piece(trace.Piece{Kind: trace.Copy, Begin: min(max(s.launched, t.copied), end), End: end, Off: s.fileOff(), Bytes: s.payload()})
	t.copied = end
}

// payload is how many bytes of requests the copies move: coalesced ones also have a
// table.
func (s *slot) payload() (n int64) {
	if !s.write {
		return int64(s.filled())
	}
	for i := range s.segments {
		n += int64(s.segments[i].n)
	}
	return n
}

// fileOff is where in its file a slot begins.
func (s *slot) fileOff() int64 {
	seg := &s.segments[0]
	return s.batch.reqs[seg.req].Off + seg.off
}
