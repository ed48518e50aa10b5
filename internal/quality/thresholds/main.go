// Command thresholds holds benchmarks to ratios. Absolute times say more about
// the machine than about the code, so each line compares two benchmarks of one
// package that were run in turn, ABAB, and takes the median of five pairs:
//
//	name | package | benchmark | compared with | lenient | strict
//
// The ratio is the time of the second over the time of the first: 0.9 means that
// the first takes at most 1/0.9 of the second's time. A benchmark that is
// compared with "itself" has both in it, turn by turn, and reports the ratio as a
// metric of that name. The lenient bound is for shared machines; -strict wants
// the other.
package main

import (
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

const pairs = 5

func main() {
	strict := flag.Bool("strict", false, "hold benchmarks to the strict bounds")
	benchtime := flag.String("benchtime", "200ms", "time of each run of a benchmark")
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
			ratios, err := b.measure(*benchtime)
			if err != nil {
				verdict = err.Error()
			} else if m := ratios[len(ratios)/2]; m < b.least {
				verdict = "TOO SLOW"
			}
			if verdict != "ok" {
				failed++
			}
			fmt.Printf("threshold %-40s ratio %s want >= %.2f  %s\n", b.name, spread(ratios), b.least, verdict)
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

// measure returns the sorted ratios of the pairs.
func (b bound) measure(benchtime string) ([]float64, error) {
	dir, err := os.MkdirTemp("", "thresholds-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	bin := filepath.Join(dir, "bench.test")
	if out, err := exec.Command("go", "test", "-c", "-o", bin, b.pkg).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build %s: %w: %s", b.pkg, err, out)
	}
	var ratios []float64
	for range pairs {
		ratio, err := b.ratio(bin, benchtime)
		if err != nil {
			return nil, err
		}
		ratios = append(ratios, ratio)
	}
	slices.Sort(ratios)
	return ratios, nil
}

// ratio is that of one pair.
func (b bound) ratio(bin, benchtime string) (float64, error) {
	if b.base == "itself" {
		return runBench(bin, b.pkg, b.bench, benchtime, reported)
	}
	ours, err := runBench(bin, b.pkg, b.bench, benchtime, nsPerOp)
	if err != nil {
		return 0, err
	}
	base, err := runBench(bin, b.pkg, b.base, benchtime, nsPerOp)
	return base / ours, err
}

// What is taken from a benchmark's line.
var (
	nsPerOp  = regexp.MustCompile(`(?m)^Benchmark\S+\s+\d+\s+([\d.]+) ns/op`)
	reported = regexp.MustCompile(`(?m)^Benchmark\S+\s+\d+\s.*\s([\d.]+) ratio`)
)

func runBench(bin, pkg, name, benchtime string, figure *regexp.Regexp) (float64, error) {
	// A benchmark of a package is run where its testdata is.
	cmd := exec.Command(bin, "-test.run=^$", "-test.bench=^"+strings.ReplaceAll(name, "/", "$/^")+"$", "-test.benchtime="+benchtime)
	cmd.Dir = pkg
	out, err := cmd.CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("%s %s: %w: %s", pkg, name, err, out)
	}
	m := figure.FindSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("%s has no benchmark %s with such a figure", pkg, name)
	}
	return strconv.ParseFloat(string(m[1]), 64)
}

func spread(r []float64) string {
	if len(r) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f (%.2f..%.2f)", r[len(r)/2], r[0], r[len(r)-1])
}
