// Command report turns the JSON of culvert bench into the tables of
// docs/performance.md: for each workload the median of its runs, their spread,
// and how Culvert compares with NVIDIA's library in the same invocation.
//
//	go run ./internal/bench/report result.json
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/culvert-io/culvert/internal/bench"
	"github.com/culvert-io/culvert/internal/human"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

func run(files []string, out io.Writer) error {
	if len(files) == 0 {
		return errors.New("missing file of results")
	}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		results, err := read(f)
		f.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		write(out, group(results))
	}
	return nil
}

// A result is what the tables need of a bench.Result.
type result struct {
	Pattern bench.Pattern `json:"pattern"`
	Block   int64         `json:"block"`
	Threads int           `json:"threads"`
	Batch   int           `json:"batch"`
	Cold    bool          `json:"cold"`
	Engine  string        `json:"engine"`
	GBps    float64       `json:"gb_per_second"`
	IOPS    float64       `json:"ops_per_second"`
	CPU     float64       `json:"cpu_seconds_per_gb"`
	Share   float64       `json:"share_of_ceiling"`
	Soft    bool          `json:"software_machine"`
	Latency bench.Latency `json:"latency_us"`
	Receipt *receipt      `json:"receipt"`
}

type receipt struct {
	Route string           `json:"route"`
	Bytes int64            `json:"bytes"`
	By    map[string]int64 `json:"bytes_by_route"`
}

// routes names the route, or those that moved at least 5 % of the bytes: "bar+ring".
func (r *receipt) routes() string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(r.By)) {
		if 20*r.By[name] >= r.Bytes {
			names = append(names, name)
		}
	}
	if len(names) < 2 {
		return r.Route
	}
	return strings.Join(names, "+")
}

func read(r io.Reader) ([]result, error) {
	var list []result
	for dec := json.NewDecoder(r); ; {
		var res result
		err := dec.Decode(&res)
		if err == io.EOF {
			return list, nil
		}
		if err != nil {
			return nil, err
		}
		if res.Soft {
			return nil, errors.New("result of the software machine among results of hardware")
		}
		list = append(list, res)
	}
}

// A line is all runs of one workload by one engine.
type line struct {
	work, engine string
	runs         []result
}

// group collects the runs of each line, in order of appearance. After all repeats, the
// same workload is that of another file and makes a new line.
func group(results []result) []*line {
	var lines []*line
	for _, r := range results {
		work := workload(r)
		i := slices.IndexFunc(lines, func(l *line) bool { return l.work == work && l.engine == engine(r) && len(l.runs) < repeats })
		if i < 0 {
			lines = append(lines, &line{work: work, engine: engine(r)})
			i = len(lines) - 1
		}
		lines[i].runs = append(lines[i].runs, r)
	}
	return lines
}

// repeats is the --repeat of docs/performance/series.sh.
const repeats = 5

func workload(r result) string {
	temperature := "warm"
	if r.Cold {
		temperature = "cold"
	}
	batch := ""
	if r.Batch > 1 {
		batch = fmt.Sprintf(", batches of %d", r.Batch)
	}
	callers := "1 caller"
	if r.Threads > 1 {
		callers = fmt.Sprintf("%d callers", r.Threads)
	}
	return fmt.Sprintf("%s %s, %s, %s%s", r.Pattern, human.ShortSize(r.Block), callers, temperature, batch)
}

func engine(r result) string {
	if r.Receipt != nil {
		return "culvert, " + r.Receipt.routes()
	}
	return r.Engine
}

func write(out io.Writer, lines []*line) {
	fmt.Fprintln(out, "| work | by | GB/s | of the ceiling | operations/s | p50 µs | CPU s/GB | against libcufile |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|---|---|")
	for _, l := range lines {
		gbps := l.of(func(r result) float64 { return r.GBps })
		fmt.Fprintf(out, "| %s | %s | %.3g (%.3g–%.3g) | %.3f | %.3g | %.3g | %.3f | %s |\n", l.work, l.engine,
			median(gbps), gbps[0], gbps[len(gbps)-1],
			median(l.of(func(r result) float64 { return r.Share })), median(l.of(func(r result) float64 { return r.IOPS })),
			median(l.of(func(r result) float64 { return r.Latency.P50 })), median(l.of(func(r result) float64 { return r.CPU })),
			against(l, lines))
	}
}

// against compares with NVIDIA's library on the same workload: rate, and latency for
// small blocks of one caller.
func against(l *line, lines []*line) string {
	i := slices.IndexFunc(lines, func(o *line) bool { return o.work == l.work && o.engine == "libcufile" })
	if i < 0 || !strings.HasPrefix(l.engine, "culvert") {
		return ""
	}
	rate := func(r result) float64 { return r.GBps }
	text := fmt.Sprintf("%.2f ×", median(l.of(rate))/median(lines[i].of(rate)))
	if l.runs[0].Threads == 1 && l.runs[0].Block <= 64<<10 {
		p50 := func(r result) float64 { return r.Latency.P50 }
		text += fmt.Sprintf(", %.2f of its latency", median(l.of(p50))/median(lines[i].of(p50)))
	}
	return text
}

// of returns a number of all runs, sorted.
func (l *line) of(value func(result) float64) []float64 {
	var v []float64
	for _, r := range l.runs {
		v = append(v, value(r))
	}
	slices.Sort(v)
	return v
}

func median(sorted []float64) float64 { return sorted[len(sorted)/2] }
