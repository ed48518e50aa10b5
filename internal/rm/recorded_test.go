package rm_test

import (
	"encoding/json"
	"os"
	"testing"
)

// TestRecorded holds what is said of windows on hardware to what TestHardware
// printed there.
func TestRecorded(t *testing.T) {
	f, err := os.Open("../../testdata/h200/bar.json")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	windows, users := 0, map[int]bool{}
	kernel := map[string]int{}
	for dec := json.NewDecoder(f); dec.More(); {
		var r hwReport
		if err := dec.Decode(&r); err != nil {
			t.Fatal(err)
		}
		users[r.UID] = true
		for way, n := range r.Windows {
			windows = max(windows, n)
			if r.Rounds[way] < 10_000 {
				t.Errorf("%s: %d rounds of store and verify", way, r.Rounds[way])
			}
		}
		for name, n := range r.Kernel {
			kernel[name] = max(kernel[name], n)
		}
		if r.Memory[0] != r.Memory[1] || r.BAR1[0] != r.BAR1[1] {
			t.Errorf("free memory %v, BAR1 %v", r.Memory, r.BAR1)
		}
		for _, name := range []string{"store 64 / copy in 64", "store 4096 / copy in 4096"} {
			if ratio := r.Ratios[name]; ratio <= 0 || ratio > 0.1 {
				t.Errorf("%s: %v, want at most 0.1", name, ratio)
			}
		}
	}
	if windows < 100_000 || !users[0] || !users[65534] {
		t.Errorf("%d windows, users %v", windows, users)
	}
	if len(kernel) != 2*len(stores) {
		t.Errorf("kernels have compared %v", kernel)
	}
	for name, n := range kernel {
		if n < 10_000 {
			t.Errorf("%s: %d rounds", name, n)
		}
	}
}
