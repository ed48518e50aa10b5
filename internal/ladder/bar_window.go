package ladder

import (
	"slices"

	"github.com/culvert-io/culvert/internal/ring"
	"github.com/culvert-io/culvert/route"
)

// A read of more than 1 MiB by the ring may go through BAR1 in part: the ring reads chunks
// straight into the mapping of the registered buffer, its window, while the copy engine has
// too little to do. Which chunks, the ring decides.

// knownWindows are the GPUs on which that is faster, by name. On an H200 (2026-11-19,
// docs/performance.md) one caller with 4 MiB reaches 14.0 instead of 8.9 GB/s, four with
// 16 MiB 46 instead of 42, and all of them take less processor time. Reads of 1 MiB lose:
// 41 instead of 44 GB/s with sixteen callers.
var knownWindows = map[string]bool{"NVIDIA H200": true}

// allowsWindows reports whether the ring may read parts of an op through BAR1, if it gets
// the op: not where a route is required, or BAR1 is not in the plan. For ops that a stream
// waits for it was not measured.
func (p *Plan) allowsWindows(op *Op) bool {
	if op.Mem.Len <= crossoverHigh || op.Dir != route.Read || op.Buf == nil || op.InStream || p.strict {
		return false
	}
	return slices.ContainsFunc(p.routes, func(r Route) bool { _, ok := r.(*barRoute); return ok })
}

// window is an op's memory as the CPU sees it; nil if the ring must not store there.
func (b *barRoute) window(op *Op) []byte {
	if !op.windows {
		return nil
	}
	// The buffer stays registered while a transfer uses it.
	mem := b.Mapping(op.Mem.Base)
	if mem == nil {
		return nil
	}
	return mem[op.Mem.Off : op.Mem.Off+op.Mem.Len]
}

// countWindow counts what went through a window as moved by BAR1, and the rest by the ring.
// After an error a window may also have bytes behind the gap, which do not count.
func countWindow(from *ring.Result, to *route.Receipt) {
	if from.WindowBytes == 0 {
		return
	}
	n := min(from.WindowBytes, from.N)
	to.By[route.Bar], to.By[route.Ring] = n, from.N-n
	to.Declined[route.Bar] = nil // it was used
}
