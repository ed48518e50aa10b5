package bench

import (
	"fmt"
	"time"

	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/route"
)

// A Result is one measurement.
type Result struct {
	Workload
	Part
	Memory    string  `json:"memory"`
	Engine    string  `json:"engine"`
	Seconds   float64 `json:"seconds"`
	FirstDone float64 `json:"first_done_us"`
	LastDone  float64 `json:"last_done_us"`
	CPUPerGB  float64 `json:"cpu_seconds_per_gb"`
	Ceiling   float64 `json:"ceiling_gb_per_second"`
	Share     float64 `json:"share_of_ceiling"`
	Resident  float64 `json:"resident_before"` // fraction of the file in the page cache before the run; -1 if unknown
	Soft      bool    `json:"software_machine"`
	Store     string  `json:"store,omitempty"` // of an object

	// Reads and Writes are the parts of a mixed pattern, whose receipts are there.
	Reads  *Part `json:"reads,omitempty"`
	Writes *Part `json:"writes,omitempty"`

	Heat *HeatMap `json:"-"` // too large for lines of figures

	part string // of a row that is one of them
}

// A Part is what calls of one direction, or all calls, have moved.
type Part struct {
	Moved   int64          `json:"bytes"`
	Ops     int64          `json:"ops"`
	GBps    float64        `json:"gb_per_second"`
	IOPS    float64        `json:"ops_per_second"`
	Latency Latency        `json:"latency_us"` // of one call: a batch counts once
	Receipt *route.Receipt `json:"receipt,omitempty"`
}

// Latency is in microseconds.
type Latency struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p99.9"`
	Max  float64 `json:"max"`
}

func newResult(r *run, threads []threadResult, took, cpu time.Duration) *Result {
	res := &Result{Workload: r.w, Memory: r.w.Kind.String(), Engine: r.e.name, Seconds: took.Seconds()}
	var by [2]tally
	var first, last time.Duration
	for i := range threads {
		t := &threads[i]
		if t.ops == 0 {
			continue // it started too late
		}
		for d := range by {
			by[d].merge(&t.by[d])
		}
		if first == 0 || t.first < first {
			first = t.first
		}
		last = max(last, t.last)
	}
	var all tally
	for d := range by {
		all.merge(&by[d])
	}
	res.Part = all.part(took)
	res.Heat = heatOf(threads)
	res.FirstDone, res.LastDone = micro(int64(first)), micro(int64(last))
	if res.Moved > 0 {
		res.CPUPerGB = cpu.Seconds() / (float64(res.Moved) / 1e9)
	}
	if r.w.Pattern.Mixed() {
		res.Receipt = nil // it would be of one direction
		reads, writes := by[route.Read].part(took), by[route.Write].part(took)
		res.Reads, res.Writes = &reads, &writes
	}
	return res
}

// heatOf joins the callers' maps; nil if they have none.
func heatOf(threads []threadResult) *HeatMap {
	sum := newHeat()
	for i := range threads {
		if h := threads[i].heat; h != nil {
			sum.merge(h)
		}
	}
	return sum.result()
}

// merge adds the calls of o.
func (t *tally) merge(o *tally) {
	if o.hist == nil {
		return
	}
	if t.hist == nil {
		t.hist = newHistogram()
	}
	t.sum.Add(&o.sum)
	t.hist.Merge(o.hist)
	t.ops += o.ops
}

func micro(ns int64) float64 { return float64(ns) / 1e3 }

func (t *tally) part(took time.Duration) Part {
	p := Part{Ops: t.ops, Moved: t.sum.Bytes}
	if t.hist != nil {
		at := func(percent float64) float64 { return micro(t.hist.ValueAtQuantile(percent)) }
		p.Latency = Latency{t.hist.Mean() / 1e3, at(50), at(90), at(99), at(99.9), micro(t.hist.Max())}
	}
	if t.sum.Route != route.None {
		sum := t.sum
		sum.Time = took
		p.Receipt = &sum
	}
	if took > 0 && p.Moved > 0 {
		p.GBps = float64(p.Moved) / took.Seconds() / 1e9
		p.IOPS = float64(p.Ops) / took.Seconds()
	}
	return p
}

// String is one line of key=value.
func (r *Result) String() string {
	via := ""
	if r.Receipt != nil {
		via = fmt.Sprintf(" route=%s host_bytes=%d(%s)", r.Receipt.Route, r.Receipt.Host.Bytes, r.Receipt.Host.Evidence)
	}
	if o := r.origin(); o.Store != "" {
		via += " " + o.String()
	}
	more := ""
	if r.Verify {
		more = " verified"
	}
	if r.Job != "" {
		more += " job=" + r.Job
	}
	if r.Files > 0 {
		more += fmt.Sprintf(" files=%d", r.Files)
	}
	if r.Limit > 0 {
		more += " limit=" + human.Rate(float64(r.Limit))
	}
	if r.Pattern.Mixed() {
		more += fmt.Sprintf(" mix=%d reads: %s writes: %s", r.ReadPercent, r.Reads, r.Writes)
	}
	return fmt.Sprintf("bench %s engine=%s%s %s bs=%s threads=%d batch=%d mem=%s registered=%v GB/s=%.3f IOPS=%.0f p50=%.2fus p99=%.2fus p99.9=%.2fus max=%.2fus first=%.0fus last=%.0fus cpu_s/GB=%.3f ceiling=%.1f share=%.3f%s%s",
		r.Pattern, r.Engine, via, temperature(r), human.ShortSize(r.Block), r.Threads, r.Batch, r.Memory, r.Register, r.GBps, r.IOPS,
		r.Latency.P50, r.Latency.P99, r.Latency.P999, r.Latency.Max, r.FirstDone, r.LastDone, r.CPUPerGB, r.Ceiling, r.Share, more, human.SoftMark(r.Soft))
}

// String is key=value fields.
func (p *Part) String() string {
	via := ""
	if p.Receipt != nil {
		via = " route=" + p.Receipt.Route.String()
	}
	return fmt.Sprintf("GB/s=%.3f IOPS=%.0f p50=%.2fus p99=%.2fus p99.9=%.2fus max=%.2fus%s",
		p.GBps, p.IOPS, p.Latency.P50, p.Latency.P99, p.Latency.P999, p.Latency.Max, via)
}

// origin is what requests to a store did; zero of files, and of peers, which count none.
func (r *Result) origin() (o route.Origin) {
	if r.Receipt != nil {
		o = r.Receipt.Origin
	}
	return o
}

func temperature(r *Result) string {
	if r.Store != "" {
		return "uncached"
	}
	name := "warm"
	if r.Cold {
		name = "cold"
	}
	if r.Resident < 0 {
		return name + "(residency unknown)"
	}
	return fmt.Sprintf("%s(%.0f%% resident)", name, 100*r.Resident)
}
