package tensor

import (
	"encoding/json"
	"flag"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/machine"
)

// hwOptions say what TestHardware measures.
type hwOptions struct {
	model, out, only string
	runs             int
}

var hwFlags hwOptions

func init() {
	flag.StringVar(&hwFlags.model, "tensor.model", "", "model for TestHardware, with a manifest; its files should be in the page cache")
	flag.StringVar(&hwFlags.out, "tensor.json", "", "file for TestHardware's results as JSON")
	flag.StringVar(&hwFlags.only, "tensor.only", "", "regular expression: which measurements of TestHardware to run")
	flag.IntVar(&hwFlags.runs, "tensor.runs", 3, "runs of each measurement of TestHardware")
}

// TestHardware measures loads on a real GPU: how large batches should be, how
// many, and what verification costs beside them. It fails where bytes are wrong,
// not where they are slow.
func TestHardware(t *testing.T) {
	if hwFlags.model == "" {
		t.Skip("needs -tensor.model and an NVIDIA GPU")
	}
	m, err := machine.Open()
	if err != nil {
		t.Fatal(err)
	}
	if m.Soft {
		t.Skipf("needs an NVIDIA GPU: %s", m.Why)
	}
	measureLoads(t, m, hwFlags)
}

// The measurements themselves are tried on the software GPU.
func TestMeasurements(t *testing.T) {
	m := transformer(t)
	measureLoads(t, softMachine(t, 64<<20), hwOptions{model: m.Path, runs: 1})
}

// A loadLine is one measurement, the median of its runs.
type loadLine struct {
	Name     string  `json:"name"`
	GBps     float64 `json:"gb_per_second"`
	Ceiling  float64 `json:"of_ceiling,omitempty"` // the pinned copy
	First    float64 `json:"first_ms"`
	Moved    float64 `json:"moved_ms"`
	Last     float64 `json:"last_ms"`
	Open     float64 `json:"open_ms"`
	Allocate float64 `json:"allocate_ms"`
	Free     float64 `json:"free_ms"`
}

func measureLoads(t *testing.T, m *machine.Machine, o hwOptions) {
	drv, err := cufile.Open(m)
	if err != nil {
		t.Fatal(err)
	}
	defer drv.Close()
	e := cufileEngine{drv: drv}
	model, err := Open(o.model)
	if err != nil {
		t.Fatal(err)
	}
	sums := &Sums{}
	defer sums.Close()
	p := planFor(t, model, Selection{}, []int{0}, nil)
	ceiling := pinnedCopy(t, e)
	lines := []loadLine{{Name: "ceiling: pinned copy", GBps: ceiling}}
	// A GPU clears the memory that was freed last with the engines that copy: 20 ms
	// for 8 GiB.
	rest := 100 * time.Millisecond
	if m.Soft {
		rest = 0
	}
	only := regexp.MustCompile(o.only)
	one := func(name string, opts LoadOptions) {
		if !only.MatchString(name) {
			return
		}
		l := measureLoad(t, e, p, opts, o.runs, rest)
		l.Name, l.Ceiling = name, l.GBps/ceiling
		lines = append(lines, l)
		t.Logf("%-28s %6.2f GB/s  %.3f of the ceiling  first %.2f moved %.2f last %.2f open %.2f allocate %.2f free %.2f ms",
			l.Name, l.GBps, l.Ceiling, l.First, l.Moved, l.Last, l.Open, l.Allocate, l.Free)
	}
	one("default", LoadOptions{})
	one("default, verified", LoadOptions{Verify: true, Sums: sums})
	for _, batch := range []int64{64 << 20, 128 << 20, 256 << 20, 512 << 20, 1 << 30, 1 << 40} {
		for _, depth := range []int{1, 2, 4} {
			one("batches of "+sizeName(batch)+", "+string('0'+rune(depth)), LoadOptions{batch: batch, depth: depth})
		}
	}
	one("batches of 64M, 2, verified", LoadOptions{batch: 64 << 20, depth: 2, Verify: true, Sums: sums})
	one("default again", LoadOptions{})
	one("default again, verified", LoadOptions{Verify: true, Sums: sums})
	if o.out == "" {
		return
	}
	text, err := json.MarshalIndent(lines, "", "\t")
	if err == nil {
		err = os.WriteFile(o.out, append(text, '\n'), 0o644)
	}
	if err != nil {
		t.Error(err)
	}
}

func sizeName(n int64) string {
	switch {
	case n >= 1<<40:
		return "all"
	case n >= 1<<30:
		return "1G"
	}
	return map[int64]string{64 << 20: "64M", 128 << 20: "128M", 256 << 20: "256M", 512 << 20: "512M"}[n]
}

func measureLoad(t *testing.T, e engine, p *Plan, opts LoadOptions, runs int, rest time.Duration) loadLine {
	t.Helper()
	var all []loadLine
	for range runs + 1 {
		time.Sleep(rest)
		l, err := newLoad(p, e, &opts)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, err := range l.Tensors(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		if n != len(p.Tensors) {
			t.Fatalf("%d of %d tensors", n, len(p.Tensors))
		}
		r := l.Report()
		begin := time.Now()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }
		all = append(all, loadLine{
			GBps: float64(r.Wanted) / r.Last.Seconds() / 1e9, First: ms(r.First), Moved: ms(r.Moved), Last: ms(r.Last),
			Open: ms(r.Open), Allocate: ms(r.Alloc), Free: ms(time.Since(begin)),
		})
	}
	all = all[1:] // the first one warms up
	slices.SortFunc(all, func(a, b loadLine) int { return int(a.GBps - b.GBps) })
	return all[len(all)/2]
}

// pinnedCopy is what the link carries, in GB/s.
func pinnedCopy(t *testing.T, e engine) float64 {
	t.Helper()
	const size, rounds = 16 << 20, 16
	dev, err := e.device(0)
	if err != nil {
		t.Fatal(err)
	}
	host, err := dev.Alloc(gpu.KindHost, size, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Free(host)
	to, err := dev.Alloc(gpu.KindDevice, size, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Free(to)
	s, err := dev.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	best := time.Duration(1 << 60)
	for range 5 {
		begin := time.Now()
		for range rounds {
			if err := s.Copy(to, host, size); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Synchronize(); err != nil {
			t.Fatal(err)
		}
		best = min(best, time.Since(begin))
	}
	return size * rounds / best.Seconds() / 1e9
}
