package ladder

import (
	"time"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/trace"
)

// Now is the time since the process started: one reading of the clock, where
// time.Now takes two.
func Now() time.Duration { return trace.Now() }

// now is the clock of transfers. A test replaces it by that of a GPU with other costs.
var now = Now

// checkAllocated checks that the registered buffers of ops are still allocated, once
// for neighbouring ops with the same buffer. With a time, results up to 1 ms older
// than that are used.
func checkAllocated(ops []Op, cached time.Duration) error {
	for i := 0; i < len(ops); {
		buf, span := ops[i].Buf, ops[i].Mem
		for i++; i < len(ops) && ops[i].Buf == buf; i++ {
			span = union(span, ops[i].Mem)
		}
		if buf == nil {
			continue
		}
		var err error
		if cached != 0 {
			err = buf.CheckAllocatedCached(span, cached)
		} else {
			err = buf.CheckAllocated(span)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// union is the smallest span around two of one buffer.
func union(a, b gpu.Span) gpu.Span {
	end := max(a.Off+a.Len, b.Off+b.Len)
	a.Off = min(a.Off, b.Off)
	a.Len = end - a.Off
	return a
}
