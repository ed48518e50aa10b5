package cufile_test

import (
	"context"
	"testing"
	"time"

	"github.com/culvert-io/culvert/internal/trace"
	"github.com/culvert-io/culvert/route"
)

// benchTrace reads in turns with and without a trace, in short rounds, and compares the
// best of each: noise only ever adds time.
func benchTrace(b *testing.B, id route.ID, n, reads int) {
	h, mem, _, _ := newRead(b, id, n)
	ctx := context.Background()
	round := func() time.Duration {
		var start time.Time
		for i := range reads + reads/10 {
			if i == reads/10 { // the first reads find cold caches, of starting a recorder, too
				start = time.Now()
			}
			if _, err := h.ReadAt(ctx, mem, 0); err != nil {
				b.Fatal(err)
			}
		}
		return time.Since(start)
	}
	best := [2]time.Duration{time.Hour, time.Hour}
	round()
	for b.Loop() {
		for range 100 {
			best[0] = min(best[0], round())
			rec := trace.Start()
			best[1] = min(best[1], round())
			rec.Close()
		}
	}
	b.ReportMetric(float64(best[0])/float64(best[1]), "ratio")
	b.ReportMetric(float64(best[1])/float64(reads), "ours-ns")
	b.ReportMetric(float64(best[0])/float64(reads), "base-ns")
}

func BenchmarkTraceBar4K(b *testing.B)   { benchTrace(b, route.Bar, 4096, 2000) }
func BenchmarkTraceBar64K(b *testing.B)  { benchTrace(b, route.Bar, 64<<10, 500) }
func BenchmarkTraceRing4K(b *testing.B)  { benchTrace(b, route.Ring, 4096, 2000) }
func BenchmarkTraceRing64K(b *testing.B) { benchTrace(b, route.Ring, 64<<10, 500) }
