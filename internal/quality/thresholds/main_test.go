package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The median counts; where it is too small, the best times do.
func TestReach(t *testing.T) {
	same := func(ratio, ours, base float64) (r runs) {
		for range pairs {
			r = append(r, pair{ratio, ours, base})
		}
		return r
	}
	for name, tt := range map[string]struct {
		runs runs
		want bool
	}{
		"good":           {same(0.9, 10, 9), true},
		"bad":            {same(0.5, 18, 9), false},
		"disturbed":      {append(same(0.5, 18, 9), pair{0.9, 10, 9}), true},
		"base disturbed": {append(same(0.5, 18, 9), pair{2, 18, 36}), false},
		"one good pair":  {append(same(0.5, 18, 9)[1:], pair{2, 18, 36}), false},
	} {
		if got := tt.runs.reach(0.8); got != tt.want {
			t.Errorf("%s: %v, %v", name, got, tt.runs)
		}
	}
}

// bench is a script that prints what a test binary would.
func bench(t *testing.T, prints string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "bench")
	if err := os.WriteFile(name, []byte("#!/bin/sh\ncat <<'E'\n"+prints+"\nE\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestFigures(t *testing.T) {
	var ns, ratio float64
	all := map[string]*float64{"ns/op": &ns, "ratio": &ratio}
	bin := bench(t, "goos: linux\nBenchmarkX-2   \t 1\t1219567094 ns/op\t   2999013 base-ns\t 0.8400 ratio\nPASS")
	if err := runBench(bin, ".", "BenchmarkX", "1ms", all); err != nil || ns != 1219567094 || ratio != 0.84 {
		t.Errorf("%v, %v, %v", ns, ratio, err)
	}
	bin = bench(t, "--- SKIP: BenchmarkX\n    x_test.go:1: needs a disk\nPASS")
	if err := runBench(bin, ".", "BenchmarkX", "1ms", all); !errors.Is(err, errSkipped) || !strings.Contains(err.Error(), "needs a disk") {
		t.Errorf("a benchmark that skips: %v", err)
	}
	if err := runBench(bench(t, "PASS"), ".", "BenchmarkX", "1ms", all); err == nil || errors.Is(err, errSkipped) {
		t.Errorf("no such benchmark: %v", err)
	}
}
