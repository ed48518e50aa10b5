package clib_test

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// lifetimesThatDiffer are those that NVIDIA's library answers otherwise, and why.
var lifetimesThatDiffer = map[string]string{
	"ohF c":  "NVIDIA's crashes in a forked child",
	"hF c":   "NVIDIA's crashes in a forked child",
	"F oc":   "NVIDIA's has another code for a child that CUDA does not work in (5011)",
	"ohrR c": "NVIDIA's crashes when it is closed after a reset of the device",
}

// TestLifetime: opening, closing, use counts and exit handlers, in many orders, are
// answered as by NVIDIA's libcufile.
func TestLifetime(t *testing.T) {
	lib := libraries(t)
	r := run(t, lib, "sh", "testdata/lifetime.sh", compile(t, "lifetime.c"), filepath.Join(t.TempDir(), "data"))
	if r.status != 0 || r.stderr != "" {
		t.Errorf("status %d: %s", r.status, r.stderr)
	}
	golden(t, "lifetime.txt", r.stdout)
	vendor, err := os.ReadFile("testdata/lifetime-libcufile-1.15-h200.txt")
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := lifetimes(r.stdout), lifetimes(string(vendor))
	for name := range lifetimesThatDiffer {
		if ours[name] == theirs[name] {
			t.Errorf("%s does not differ any more", name)
		}
	}
	maps.DeleteFunc(ours, func(name, _ string) bool { return lifetimesThatDiffer[name] != "" })
	maps.DeleteFunc(theirs, func(name, _ string) bool { return lifetimesThatDiffer[name] != "" })
	if d := cmp.Diff(theirs, ours); d != "" {
		t.Errorf("(-NVIDIA's +ours):\n%s", d)
	}
}

// lifetimes are the parts of a transcript by name.
func lifetimes(text string) map[string]string {
	parts := map[string]string{}
	for part := range strings.SplitSeq(text, "== ") {
		name, answers, _ := strings.Cut(part, "\n")
		parts[name] = answers
	}
	return parts
}
