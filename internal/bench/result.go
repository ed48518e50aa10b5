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
	Memory    string         `json:"memory"`
	Engine    string         `json:"engine"`
	Bytes     int64          `json:"bytes"`
	Ops       int64          `json:"ops"`
	Seconds   float64        `json:"seconds"`
	GBps      float64        `json:"gb_per_second"`
	IOPS      float64        `json:"ops_per_second"`
	Latency   Latency        `json:"latency_us"` // of one call: a batch counts once
	FirstDone float64        `json:"first_done_us"`
	LastDone  float64        `json:"last_done_us"`
	CPUPerGB  float64        `json:"cpu_seconds_per_gb"`
	Ceiling   float64        `json:"ceiling_gb_per_second"`
	Share     float64        `json:"share_of_ceiling"`
	Resident  float64        `json:"resident_before"` // fraction of the file in the page cache before the run; -1 if unknown
	Soft      bool           `json:"software_machine"`
	Receipt   *route.Receipt `json:"receipt,omitempty"`
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
	sum, hist := new(route.Receipt), newHistogram()
	var first, last time.Duration
	for i := range threads {
		t := &threads[i]
		if t.ops == 0 {
			continue // it started too late
		}
		sum.Add(&t.sum)
		hist.Merge(t.hist)
		res.Ops += t.ops
		if first == 0 || t.first < first {
			first = t.first
		}
		last = max(last, t.last)
	}
	us := func(ns int64) float64 { return float64(ns) / 1e3 }
	res.Latency = Latency{
		hist.Mean() / 1e3, us(hist.ValueAtQuantile(50)), us(hist.ValueAtQuantile(90)),
		us(hist.ValueAtQuantile(99)), us(hist.ValueAtQuantile(99.9)), us(hist.Max()),
	}
	res.Bytes = sum.Bytes
	res.FirstDone, res.LastDone = us(int64(first)), us(int64(last))
	sum.Time = took
	if sum.Route != route.None {
		res.Receipt = sum
	}
	if took > 0 && res.Bytes > 0 {
		res.GBps = float64(res.Bytes) / took.Seconds() / 1e9
		res.IOPS = float64(res.Ops) / took.Seconds()
		res.CPUPerGB = cpu.Seconds() / (float64(res.Bytes) / 1e9)
	}
	return res
}

// String is one line of key=value.
func (r *Result) String() string {
	via := ""
	if r.Receipt != nil {
		via = fmt.Sprintf(" route=%s host_bytes=%d(%s)", r.Receipt.Route, r.Receipt.Host.Bytes, r.Receipt.Host.Evidence)
	}
	verified := ""
	if r.Verify {
		verified = " verified"
	}
	return fmt.Sprintf("bench %s engine=%s%s %s bs=%s threads=%d batch=%d mem=%s registered=%v GB/s=%.3f IOPS=%.0f p50=%.2fus p99=%.2fus first=%.0fus last=%.0fus cpu_s/GB=%.3f ceiling=%.1f share=%.3f%s%s",
		r.Pattern, r.Engine, via, temperature(r), human.ShortSize(r.Block), r.Threads, r.Batch, r.Memory, r.Register, r.GBps, r.IOPS,
		r.Latency.P50, r.Latency.P99, r.FirstDone, r.LastDone, r.CPUPerGB, r.Ceiling, r.Share, verified, human.SoftMark(r.Soft))
}

func temperature(r *Result) string {
	name := "warm"
	if r.Cold {
		name = "cold"
	}
	if r.Resident < 0 {
		return name + "(residency unknown)"
	}
	return fmt.Sprintf("%s(%.0f%% resident)", name, 100*r.Resident)
}
