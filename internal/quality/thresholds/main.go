// Command thresholds checks ratios of benchmarks. Absolute times say more about the
// machine than about the code, so each line compares two benchmarks of one package
// that run in turn, ABAB, by the median of five pairs:
//
//	name | package | benchmark | compared with | lenient | strict
//
// The ratio is the time of the second over the time of the first: 0.9 means that
// the first takes at most 1/0.9 of the second's time. A benchmark that is compared
// with "itself" runs both in turn, and reports the median as a metric named ratio,
// and the best times as ours-ns and base-ns. The lenient bound is for shared
// machines; -strict uses the other.
//
// Other load affects the two unequally. If the median is too small, up to 30 pairs
// run until the best times, those without disturbance, reach the ratio. A benchmark
// that skips is reported.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	pairs = 5
	most  = 30 // if the median is too small
)

func main() {
	strict := flag.Bool("strict", false, "use the strict bounds")
	benchtime := flag.String("benchtime", "200ms", "duration of each run")
	flag.Parse()
	failed := 0
	for _, list := range flag.Args() {
		bounds, err := readList(list, *strict)
		if err != nil {
			fmt.Fprintln(os.Stderr, "thresholds:", err)
			os.Exit(2)
		}
		for _, b := range bounds {
			verdict := "ok"
			all, err := b.measure(*benchtime)
			if err != nil && !errors.Is(err, errSkipped) {
				all, err = b.measure(*benchtime)
			}
			switch {
			case errors.Is(err, errSkipped):
				verdict = err.Error()
			case err != nil:
				verdict = err.Error()
				failed++
			case !all.reach(b.least):
				verdict = "TOO SLOW"
				failed++
			}
			fmt.Printf("threshold %-40s ratio %s want >= %.2f  %s\n", b.name, all, b.least, verdict)
		}
	}
	if failed > 0 {
		os.Exit(1)
	}
}

// A bound is one line of the list.
type bound struct {
	name, pkg, bench, base string
	least                  float64
}

func readList(path string, strict bool) ([]bound, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var list []bound
	for i, line := range strings.Split(string(text), "\n") {
		if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Split(line, "|")
		for j := range f {
			f[j] = strings.TrimSpace(f[j])
		}
		if len(f) != 6 {
			return nil, fmt.Errorf("%s:%d: want six fields separated by |, got %d", path, i+1, len(f))
		}
		least, err := strconv.ParseFloat(f[map[bool]int{false: 4, true: 5}[strict]], 64)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, i+1, err)
		}
		list = append(list, bound{f[0], f[1], f[2], f[3], least})
	}
	return list, nil
}

// measure runs the pairs.
func (b bound) measure(benchtime string) (runs, error) {
	dir, err := os.MkdirTemp("", "thresholds-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	bin := filepath.Join(dir, "bench.test")
	if out, err := exec.Command("go", "test", "-c", "-o", bin, b.pkg).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build %s: %w: %s", b.pkg, err, out)
	}
	var all runs
	for len(all) < pairs || len(all) < most && !all.reach(b.least) {
		p, err := b.pair(bin, benchtime)
		if err != nil {
			return all, err
		}
		all = append(all, p)
	}
	return all, nil
}

// A pair is one run of both benchmarks.
type pair struct{ ratio, ours, base float64 }

func (b bound) pair(bin, benchtime string) (p pair, err error) {
	if b.base == "itself" {
		err = runBench(bin, b.pkg, b.bench, benchtime, map[string]*float64{"ratio": &p.ratio, "ours-ns": &p.ours, "base-ns": &p.base})
		return p, err
	}
	if err := runBench(bin, b.pkg, b.bench, benchtime, map[string]*float64{"ns/op": &p.ours}); err != nil {
		return p, err
	}
	err = runBench(bin, b.pkg, b.base, benchtime, map[string]*float64{"ns/op": &p.base})
	p.ratio = p.base / p.ours
	return p, err
}

// Runs are all pairs of a bound.
type runs []pair

// reach reports whether the median of the first pairs or the ratio of the best times
// is large enough.
func (r runs) reach(least float64) bool {
	first := r.ratios()
	return first[len(first)/2] >= least || r.best() >= least
}

// ratios returns the ratios of the first pairs, sorted.
func (r runs) ratios() (list []float64) {
	for _, p := range r[:min(len(r), pairs)] {
		list = append(list, p.ratio)
	}
	slices.Sort(list)
	return list
}

func (r runs) best() float64 {
	ours, base := r[0].ours, r[0].base
	for _, p := range r {
		ours, base = min(ours, p.ours), min(base, p.base)
	}
	return base / ours
}

func (r runs) String() string {
	first := r.ratios()
	if len(first) == 0 {
		return "-"
	}
	s := fmt.Sprintf("%.2f (%.2f..%.2f)", first[len(first)/2], first[0], first[len(first)-1])
	if len(r) > pairs {
		s += fmt.Sprintf(", %.2f of the best times in %d runs", r.best(), len(r))
	}
	return s
}

var errSkipped = errors.New("skipped")

// runBench runs a benchmark and reads numbers from its line, by their units.
func runBench(bin, pkg, name, benchtime string, values map[string]*float64) error {
	// A benchmark runs where its testdata is.
	cmd := exec.Command(bin, "-test.run=^$", "-test.bench=^"+strings.ReplaceAll(name, "/", "$/^")+"$", "-test.benchtime="+benchtime)
	cmd.Dir = pkg
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", pkg, name, err, out)
	}
	if _, why, ok := strings.Cut(string(out), "--- SKIP: "); ok {
		return fmt.Errorf("%w: %s", errSkipped, strings.Join(strings.Fields(why), " "))
	}
	for unit, to := range values {
		m := regexp.MustCompile(`(?m)^Benchmark\S+\s+\d+\s(?:.*\s)?([\d.]+) ` + unit + `\b`).FindSubmatch(out)
		if m == nil {
			return fmt.Errorf("%s has no benchmark %s that reports %s", pkg, name, unit)
		}
		if *to, err = strconv.ParseFloat(string(m[1]), 64); err != nil {
			return err
		}
	}
	return nil
}
