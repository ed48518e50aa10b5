package ring

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/gpu/cuda"
)

// hwOptions say what TestHardware measures.
type hwOptions struct {
	dir, shm, out, only, sweep string
	size                       int64
	runs                       int
}

var hwFlags hwOptions

func init() {
	flag.StringVar(&hwFlags.dir, "ring.dir", "", "directory on a disk for TestHardware (default: a temporary one)")
	flag.StringVar(&hwFlags.shm, "ring.shm", "/dev/shm", "directory in memory for TestHardware; empty for none")
	flag.StringVar(&hwFlags.out, "ring.json", "", "file for TestHardware's results as JSON")
	flag.StringVar(&hwFlags.only, "ring.only", "", "regular expression: which measurements of TestHardware to run")
	flag.StringVar(&hwFlags.sweep, "ring.sweep", "8,12,16:1M,2M:2,4", "workers:slots:depths that TestHardware tries; empty for none")
	flag.Int64Var(&hwFlags.size, "ring.size", 8<<30, "bytes of TestHardware's files")
	flag.IntVar(&hwFlags.runs, "ring.runs", 3, "runs of each measurement of TestHardware")
}

// TestHardware measures the ring on a real GPU. It is not a test of speed, which
// depends on the machine, but fails where bytes are wrong.
func TestHardware(t *testing.T) {
	drv, err := cuda.Open()
	if err != nil {
		t.Skipf("needs an NVIDIA GPU: %v", err)
	}
	dev, err := drv.Open(0)
	if err != nil {
		t.Skipf("needs an NVIDIA GPU: %v", err)
	}
	t.Cleanup(func() { dev.Close() }) // after what measure has allocated is freed
	measure(t, dev, hwFlags)
}

// The measurements themselves are tried on the software GPU.
func TestMeasurements(t *testing.T) {
	measure(t, openGPU(t), hwOptions{size: 8 << 20, runs: 1, sweep: "2:64K,1M:2"})
}

func measure(t *testing.T, dev gpu.Device, opt hwOptions) {
	h := newBench(t, dev, opt)
	defer h.save()
	h.ceilings()
	h.calls()
	files := h.files()
	h.withRing("default", Config{}, func() {
		for _, f := range files {
			h.reads(f)
		}
		h.batches(files[0], "")
	})
	h.withRing("without io_uring", Config{noUring: true}, func() { h.batches(files[0], " without io_uring") })
	h.sweep(files[0])
	// Writes come last: they spoil the files.
	h.withRing("default", Config{}, func() {
		h.cold(files[len(files)-1])
		h.small(files[0])
		for _, f := range files {
			h.writes(f)
		}
	})
}

// A bench has what the measurements share.
type bench struct {
	t     *testing.T
	opt   hwOptions
	dev   gpu.Device
	r     *Ring
	only  *regexp.Regexp
	mem   gpu.Addr // as large as a file
	h2d   float64  // GB/s
	d2h   float64
	lines []line
}

// A line is one measurement: rates in GB/s (1e9), median of the runs.
type line struct {
	Name      string  `json:"name"`
	GBps      float64 `json:"gb_per_second"`
	Min       float64 `json:"min"`
	Max       float64 `json:"max"`
	OfCeiling float64 `json:"of_ceiling,omitempty"` // the pinned copy in the same run
	OfPeer    float64 `json:"of_peer,omitempty"`    // plain preads or pwrites in the same run
	OfPeerMin float64 `json:"of_peer_min,omitempty"`
	OfPeerMax float64 `json:"of_peer_max,omitempty"`
	IOPS      float64 `json:"iops,omitempty"`
	LatencyUS float64 `json:"latency_us,omitempty"` // median
	P99US     float64 `json:"p99_us,omitempty"`
	CPU       float64 `json:"cpu_seconds_per_gb,omitempty"`
	Workers   int     `json:"workers,omitempty"`
	Slot      int64   `json:"slot,omitempty"`
	Depth     int     `json:"depth,omitempty"`
	Pinned    int64   `json:"pinned,omitempty"`
}

func newBench(t *testing.T, dev gpu.Device, opt hwOptions) *bench {
	h := &bench{t: t, opt: opt, dev: dev, only: regexp.MustCompile(opt.only)}
	var err error
	if h.mem, err = dev.Alloc(gpu.KindDevice, uint64(opt.size), 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Free(h.mem); err != nil {
			t.Error(err)
		}
	})
	t.Logf("%s, %d processors, %s", dev.Info().Name, runtime.GOMAXPROCS(0), time.Now().UTC().Format(time.RFC3339))
	return h
}

func (h *bench) wanted(name string) bool { return h.only.MatchString(name) }

func (h *bench) add(l line) {
	if h.r != nil {
		l.Workers, l.Slot, l.Depth, l.Pinned = h.r.sizing.pipelines, h.r.sizing.slot, h.r.sizing.depth, h.r.Pinned()
	}
	h.lines = append(h.lines, l)
	s := fmt.Sprintf("%-44s", l.Name)
	if l.GBps != 0 {
		s += fmt.Sprintf(" gbps=%.2f (%.2f..%.2f)", l.GBps, l.Min, l.Max)
	}
	for _, f := range []struct {
		name  string
		value float64
	}{
		{"of_ceiling", l.OfCeiling},
		{"of_peer", l.OfPeer},
		{"of_peer_min", l.OfPeerMin},
		{"of_peer_max", l.OfPeerMax},
		{"iops", l.IOPS},
		{"lat_us", l.LatencyUS},
		{"p99_us", l.P99US},
		{"cpu_s_per_gb", l.CPU},
	} {
		if f.value != 0 {
			s += fmt.Sprintf(" %s=%.4g", f.name, f.value)
		}
	}
	h.t.Log(s)
}

func (h *bench) save() {
	if h.opt.out == "" {
		return
	}
	b, err := json.MarshalIndent(struct {
		GPU   gpu.Info  `json:"gpu"`
		Time  time.Time `json:"time"`
		Lines []line    `json:"measurements"`
	}{h.dev.Info(), time.Now().UTC(), h.lines}, "", "\t")
	if err == nil {
		err = os.WriteFile(h.opt.out, append(b, '\n'), 0o644)
	}
	if err != nil {
		h.t.Error(err)
	}
}

// withRing runs the measurements on a ring that is warm: all pipelines are made.
func (h *bench) withRing(name string, cfg Config, do func()) {
	r, err := New(h.dev, cfg)
	if err != nil {
		h.t.Fatalf("%s: %v", name, err)
	}
	h.r = r
	do()
	h.r = nil
	if err := r.Close(); err != nil {
		h.t.Error(err)
	}
}

// sweep tries shapes of the ring on one large request and on many callers.
func (h *bench) sweep(f *hwFile) {
	parts := strings.Split(h.opt.sweep, ":")
	if len(parts) != 3 {
		return
	}
	for w := range strings.SplitSeq(parts[0], ",") {
		for s := range strings.SplitSeq(parts[1], ",") {
			for d := range strings.SplitSeq(parts[2], ",") {
				cfg := Config{Budget: 1 << 30, Workers: h.number(w), Slot: h.number(s), Depth: h.number(d)}
				name := fmt.Sprintf("sweep workers=%s slot=%s depth=%s", w, s, d)
				if !h.wanted(name) {
					continue
				}
				h.withRing(name, cfg, func() {
					h.read(name+" one request", f, 1, h.opt.size, 3)
					h.read(name+" 16x1M", f, 16, 1<<20, 3)
				})
			}
		}
	}
}

func (h *bench) number(s string) int {
	unit := 1
	if digits, ok := strings.CutSuffix(s, "M"); ok {
		s, unit = digits, 1<<20
	} else if digits, ok := strings.CutSuffix(s, "K"); ok {
		s, unit = digits, 1<<10
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		h.t.Fatalf("-ring.sweep: %v", err)
	}
	return n * unit
}

// read measures blocks of a file into the GPU by so many callers.
func (h *bench) read(name string, f *hwFile, callers int, block int64, runs int) {
	if !h.wanted(name) || block > f.size {
		return
	}
	l := h.rate(name, runs, func() int64 {
		return h.move(f, callers, block, Request{Buffered: f.buffered, Direct: -1})
	})
	l.OfCeiling = l.GBps / h.h2d
	h.add(l)
	h.verify(f)
}

// move runs all blocks of a file once, in an order that is not the file's when
// there are many.
func (h *bench) move(f *hwFile, callers int, block int64, like Request) int64 {
	total := min(f.size, int64(callers)*max(block*4096, 1<<30)) // small blocks: not the whole file
	total = total / block * block
	reqs, res := make([]Request, callers), make([]Result, callers)
	timed(h.t, callers, block, total, func(c int, off, n int64) error {
		reqs[c] = like
		reqs[c].Off, reqs[c].Addr, reqs[c].Len = off, h.mem+gpu.Addr(off), n
		return h.r.Run(context.Background(), reqs[c:c+1], res[c:c+1])
	})
	return total
}

// rate measures runs of something that returns how many bytes it moved.
func (h *bench) rate(name string, runs int, do func() int64) line {
	var rates []float64
	var bytes int64
	do() // warm: pipelines, page tables, clocks
	cpu := cpuTime()
	for range runs {
		start := time.Now()
		n := do()
		rates = append(rates, float64(n)/time.Since(start).Seconds()/1e9)
		bytes += n
	}
	cpu = cpuTime() - cpu
	mid, lo, hi := spread(rates)
	return line{Name: name, GBps: mid, Min: lo, Max: hi, CPU: cpu.Seconds() / (float64(bytes) / 1e9)}
}

func cpuTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
