package bench

import (
	"encoding/csv"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/culvert-io/culvert/route"
)

func sample(engine string, id route.ID) *Result {
	r := &Result{
		Workload: Workload{Pattern: SeqRead, Block: 1 << 20, Threads: 16, Batch: 1, Register: true}, Memory: "device", Engine: engine,
		Part:     Part{Moved: 100, GBps: 42.128, IOPS: 40177.3, Latency: Latency{Mean: 190, P50: 182.4, P90: 200, P99: 311, P999: 1402, Max: 2.5e6}},
		CPUPerGB: 0.1342, Ceiling: 54.8, Share: 0.769, Resident: 1,
	}
	if id != route.None {
		r.Receipt = &route.Receipt{Route: id, Bytes: 100, Host: route.ByteCount{Bytes: 100}}
	}
	return r
}

// Rows stand under their titles, and a title comes once for what rows share.
func TestTable(t *testing.T) {
	var out strings.Builder
	table := &Table{W: &out}
	cold := sample("culvert", route.NVFS)
	cold.Cold, cold.Soft, cold.Resident, cold.Share, cold.Ceiling = true, true, -1, 0, 0
	for _, r := range []*Result{sample("culvert/ring", route.Ring), sample("pread", route.None), cold} {
		if err := table.Print(r); err != nil {
			t.Fatal(err)
		}
	}
	const want = `read, memory device, warm, link 54.8 GB/s (pinned copy)
ENGINE     ROUTE   BLOCK THREADS BATCH   GB/s  LINK     IOPS     p50     p99   p99.9     max CPU s/GB  HOST CACHED
culvert    ring       1M      16     1   42.1   77%    40177   182µs   311µs  1.40ms   2.50s    0.134  100%   100%
pread      -          1M      16     1   42.1   77%    40177   182µs   311µs  1.40ms   2.50s    0.134     -   100%

read, memory device, cold, SOFTWARE MACHINE: figures say nothing about hardware
ENGINE     ROUTE   BLOCK THREADS BATCH   GB/s  LINK     IOPS     p50     p99   p99.9     max CPU s/GB  HOST CACHED
culvert    nvfs       1M      16     1   42.1     -    40177   182µs   311µs  1.40ms   2.50s    0.134  100%      ?
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", &out, want)
	}
}

// Mixed reads and writes have rows of their own, whose routes may differ.
func TestTableOfMixed(t *testing.T) {
	r := sample("culvert", route.None)
	r.Pattern, r.ReadPercent, r.Limit, r.Share, r.Ceiling, r.Job = RandMixed, 70, 2_500_000_000, 0, 0, "nightly"
	r.Reads = &Part{GBps: 30, IOPS: 28000, Latency: Latency{P50: 100, P99: 200, P999: 300, Max: 400}, Receipt: &route.Receipt{Route: route.Bar, Bytes: 100}}
	r.Writes = &Part{GBps: 12.1, IOPS: 12000, Latency: Latency{P50: 500, P99: 600, P999: 700, Max: 800}, Receipt: &route.Receipt{Route: route.Ring, Bytes: 50, Host: route.ByteCount{Bytes: 50}}}
	var out strings.Builder
	if err := (&Table{W: &out}).Print(r); err != nil {
		t.Fatal(err)
	}
	const want = `job nightly: randrw with 70% reads, memory device, at most 2.5 GB/s, warm
ENGINE     ROUTE   BLOCK THREADS BATCH   GB/s  LINK     IOPS     p50     p99   p99.9     max CPU s/GB  HOST CACHED
culvert    -          1M      16     1   42.1     -    40177   182µs   311µs  1.40ms   2.50s    0.134     -   100%
  reads    bar        1M      16     1   30.0     -    28000   100µs   200µs   300µs   400µs        -    0%   100%
  writes   ring       1M      16     1   12.1     -    12000   500µs   600µs   700µs   800µs        -  100%   100%
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", &out, want)
	}
	out.Reset()
	if err := (&CSV{W: &out}).Print(r); err != nil {
		t.Fatal(err)
	}
	for i, part := range []string{",70,2500000000,,part,", ",70,2500000000,nightly,all,", ",70,2500000000,nightly,reads,", ",70,2500000000,nightly,writes,"} {
		if line := strings.Split(out.String(), "\n")[i]; i > 0 && !strings.Contains(line, part) {
			t.Errorf("line %d is %s", i, line)
		}
	}
	if line := r.String(); !strings.Contains(line, "p99=311.00us p99.9=1402.00us max=2500000.00us ") || !strings.Contains(line, "job=nightly limit=2.5GB/s mix=70 reads: GB/s=30.000 IOPS=28000 p50=100.00us") || !strings.Contains(line, "max=400.00us route=bar writes: GB/s=12.100 ") {
		t.Error(line)
	}
}

// csvWords are the columns of CSV that are no numbers.
var csvWords = []string{"pattern", "engine", "route", "memory", "registered", "cold", "job", "part", "store", "software_machine"}

func TestCSV(t *testing.T) {
	var out strings.Builder
	c := &CSV{W: &out}
	for range 2 {
		if err := c.Print(sample("culvert", route.Ring)); err != nil {
			t.Fatal(err)
		}
	}
	rows, err := csv.NewReader(strings.NewReader(out.String())).ReadAll()
	if err != nil || len(rows) != 3 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	got := map[string]string{}
	for i, name := range rows[0] {
		got[name] = rows[1][i]
	}
	if got["route"] != "ring" || got["block_bytes"] != "1048576" || got["p99.9_us"] != "1402" || got["gb_per_second"] != "42.128" {
		t.Errorf("%v", got)
	}
	for column, value := range got { // programs add and draw them
		if _, err := strconv.ParseFloat(value, 64); err != nil && !slices.Contains(csvWords, column) {
			t.Errorf("%s is %q, not a number", column, value)
		}
	}
}

// On every screen the columns that are shown fit, and the others are named.
func TestTableFits(t *testing.T) {
	for width := 40; width <= 200; width++ {
		table := Table{Width: width}
		line := table.line(func(c tableColumn) string { return strings.Repeat("x", c.width) })
		if len(line) > width {
			t.Errorf("%d columns on a screen of %d: %s", len(line), width, line)
		}
		for _, c := range tableColumns {
			if shown := width >= c.need; shown == strings.Contains(table.hidden(), c.title) && c.title != "p99" {
				t.Errorf("%s in %d columns: shown %t, left out %s", c.title, width, shown, table.hidden())
			}
		}
	}
}

// No rate of a slow device is wider than its column.
func TestTableRate(t *testing.T) {
	for rate, want := range map[float64]string{0: "0.0000", 0.000051234: "0.0001", 0.0051234: "0.0051", 0.012345: "0.0123", 0.61234: "0.612", 52.04: "52.0", 1234.5: "1234", 111.4: "111"} {
		if got := tableRate(rate); got != want {
			t.Errorf("%g: %s, want %s", rate, got, want)
		}
	}
}
