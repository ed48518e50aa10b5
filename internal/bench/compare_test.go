package bench

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
)

// The p-values are counted by hand: of 70 orders of 4 and 4 rounds, 2 are apart.
func TestRankSum(t *testing.T) {
	for _, c := range []struct {
		a, b []float64
		want float64
	}{
		{[]float64{1, 2, 3, 4}, []float64{5, 6, 7, 8}, 2.0 / 70},
		{[]float64{5, 6, 7, 8}, []float64{1, 2, 3, 4}, 2.0 / 70},
		{[]float64{1, 2, 3}, []float64{4, 5, 6}, 2.0 / 20},
		{[]float64{1}, []float64{2}, 1},
		{[]float64{1, 3, 5, 7}, []float64{2, 4, 6, 8}, 48.0 / 70}, // U = 6
		{[]float64{2, 2, 2}, []float64{2, 2, 2}, 1},
		{nil, []float64{1}, 1},
		// Of 6 pairs of the doubled ranks 2, 5, 5, 8, four are as far from the mean as 2 and 5.
		{[]float64{1, 2}, []float64{2, 3}, 4.0 / 6},
	} {
		if got := rankSum(c.a, c.b); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%v and %v: p is %v, want %v", c.a, c.b, got, c.want)
		}
	}
}

func TestMedian(t *testing.T) {
	for want, list := range map[float64][]float64{1: {1}, 2: {3, 1, 2}, 2.5: {4, 1, 3, 2}} {
		if got := median(list); got != want {
			t.Errorf("the median of %v is %v", list, got)
		}
	}
}

// rounds are results of one workload with these rates.
func rounds(block int64, rates ...float64) (list []*Result) {
	for _, g := range rates {
		list = append(list, &Result{Workload: Workload{Pattern: SeqRead, Block: block, Threads: 2, Batch: 1, Register: true}, Memory: "device", Engine: "culvert", Part: Part{GBps: g}})
	}
	return list
}

func saved(t *testing.T, results []*Result) Rates {
	t.Helper()
	var text strings.Builder
	enc := json.NewEncoder(&text)
	for _, r := range results {
		if err := enc.Encode(r); err != nil {
			t.Fatal(err)
		}
	}
	rates, err := ReadRates(strings.NewReader(text.String()))
	if err != nil {
		t.Fatal(err)
	}
	return rates
}

func TestCompare(t *testing.T) {
	for want, c := range map[string]struct{ old, now []float64 }{
		"+100.0%  read culvert bs=4K threads=2 batch=1: faster (p=0.029, Mann-Whitney, 4 and 4 rounds)":               {[]float64{1, 1.1, 0.9, 1}, []float64{2, 2, 2.1, 1.9}},
		"-50.0%  read culvert bs=4K threads=2 batch=1: slower (p=0.029":                                               {[]float64{2, 2, 2.1, 1.9}, []float64{1, 1.1, 0.9, 1}},
		"bs=4K threads=2 batch=1: no significant difference (p=0.":                                                    {[]float64{1, 2, 3, 4}, []float64{1.5, 2.5, 3.5, 4.5}},
		"+100.0%  read culvert bs=4K threads=2 batch=1: not decided (p=0.100, Mann-Whitney, 3 and 3 rounds)\nToo few": {[]float64{1, 1.1, 0.9}, []float64{2, 2.1, 1.9}},
	} {
		var out strings.Builder
		if err := Compare(&out, saved(t, rounds(4096, c.old...)), rounds(4096, c.now...)); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), want) {
			t.Errorf("got:\n%s\nwant:\n%s", &out, want)
		}
	}
}

// Only runs of the same kind are compared.
func TestCompareOtherRuns(t *testing.T) {
	var out strings.Builder
	if err := Compare(&out, saved(t, rounds(4096, 1)), rounds(8192, 2)); err != nil {
		t.Fatal(err)
	}
	if want := "bs=8K threads=2 batch=1: the saved file has no such run"; !strings.Contains(out.String(), want) {
		t.Errorf("got:\n%s\nwant:\n%s", &out, want)
	}
}

func TestReadRatesRejects(t *testing.T) {
	for _, text := range []string{"", "{}", "[]", "x", `{"engine":"culvert"}`, `{"gb_per_second":1}`, `{"engine":"culvert","gb_per_second":"fast"}`} {
		if rates, err := ReadRates(strings.NewReader(text)); err == nil {
			t.Errorf("%q: %v", text, rates)
		} else if strings.Contains(err.Error(), "Go ") {
			t.Errorf("%q: the error is about types of this program: %v", text, err)
		}
	}
}
