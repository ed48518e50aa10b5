package gdstools

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/culvert-io/culvert/internal/stats"
)

// Stats prints the totals of a process in gds_stats' layout. Level 1 has the totals,
// 2 says that sizes are not recorded, 3 adds a line per GPU.
func Stats(s *stats.Snapshot, level int, out io.Writer) error {
	reads, in := s.Totals.Sum(false)
	writes, written := s.Totals.Sum(true)
	p := printer{out}
	p.line("cuFile STATS VERSION : culvert")
	p.line("GLOBAL STATS:")
	p.line("Total Files: %d", len(s.Files))
	p.line("Total Errors : %d", s.Totals.Errors)
	p.line("Total Read Size (MiB): %d", in>>20)
	p.line("Total Write Size (MiB): %d", written>>20)
	p.line("Read IO count: %d", reads)
	p.line("Write IO count: %d", writes)
	p.line("Bytes through host memory (MiB): %d", s.Totals.Host>>20)
	p.line("Avg Latency (usecs): %d", s.Totals.Time.Microseconds()/max(reads+writes, 1))
	for i, name := range s.Routes {
		if n := s.Totals.Bytes[0][i] + s.Totals.Bytes[1][i]; n > 0 {
			p.line("Route %s (MiB): %d", name, n>>20)
		}
	}
	if level >= 2 {
		p.line("READ-WRITE SIZE HISTOGRAM :\nnot recorded")
	}
	if level >= 3 {
		perGPU(p, s)
	}
	return nil
}

func perGPU(p printer, s *stats.Snapshot) {
	type sums struct{ ops, bytes, host, errors int64 }
	byGPU := map[int]sums{}
	for _, f := range s.Files {
		reads, in := f.Totals.Sum(false)
		writes, out := f.Totals.Sum(true)
		sum := byGPU[f.GPU]
		byGPU[f.GPU] = sums{sum.ops + reads + writes, sum.bytes + in + out, sum.host + f.Totals.Host, sum.errors + f.Totals.Errors}
	}
	p.line("PER_GPU STATS:")
	for _, gpu := range slices.Sorted(maps.Keys(byGPU)) {
		name := fmt.Sprintf("GPU %d", gpu)
		if gpu < 0 {
			name = "GPU unknown"
		}
		sum := byGPU[gpu]
		posix := 0
		if sum.bytes > 0 {
			posix = int(100 * sum.host / sum.bytes)
		}
		p.line("%s: n=%d posix=%d%% err=%d MiB=%d", name, sum.ops, min(posix, 100), sum.errors, sum.bytes>>20)
	}
}
