package cuda_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/culvert-io/culvert/internal/abi/cuda"
)

// DriverResult searches a sorted table, and C programs see each of its texts.
func TestResults(t *testing.T) {
	if !slices.IsSortedFunc(cuda.Results, func(a, b cuda.Result) int { return int(a.Code - b.Code) }) {
		t.Error("the table is not in ascending order")
	}
	for _, r := range cuda.Results {
		if r.Message == "" || r.Runtime+r.Driver == "" || r.Runtime != "" && !strings.HasPrefix(r.Runtime, "cuda") || r.Driver != "" && !strings.HasPrefix(r.Driver, "CUDA_") {
			t.Errorf("incomplete: %+v", r)
		}
		if got, ok := cuda.DriverResult(r.Code); ok != (r.Driver != "") || ok && got != r {
			t.Errorf("lookup of %d: %+v, %v", r.Code, got, ok)
		}
	}
}
