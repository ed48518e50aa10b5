package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const events = `{"Action":"run","Package":"github.com/culvert-io/culvert/gpu","Test":"TestA"}
{"Action":"pass","Package":"github.com/culvert-io/culvert/gpu","Test":"TestA"}
{"Action":"output","Package":"github.com/culvert-io/culvert/gpu","Test":"TestB","Output":"=== RUN   TestB\n"}
{"Action":"output","Package":"github.com/culvert-io/culvert/gpu","Test":"TestB","Output":"    b_test.go:1: needs a GPU\n"}
{"Action":"skip","Package":"github.com/culvert-io/culvert/gpu","Test":"TestB"}
{"Action":"pass","Package":"github.com/culvert-io/culvert/gpu","Elapsed":0.5}
`

func runOn(t *testing.T, events, manifest string) (string, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "suites.txt")
	if err := os.WriteFile(path, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	err := run(path, false, strings.NewReader(events), &out)
	return out.String(), err
}

func TestManifestHoldsTheNumbers(t *testing.T) {
	out, err := runOn(t, events, "gpu 1\n")
	if err != nil || !strings.Contains(out, "1 passed, 0 failed, 1 skipped") || !strings.Contains(out, "TestB: b_test.go:1: needs a GPU") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := runOn(t, events, "gpu 2\n"); err == nil || !strings.Contains(out, "FEWER gpu: 1 tests passed, the manifest wants 2") {
		t.Errorf("one test fewer: %v\n%s", err, out)
	}
	if _, err := runOn(t, events, "gpu 1\nroute 3\n"); err == nil {
		t.Error("a suite that did not run at all was not missed")
	}
	if _, err := runOn(t, events, "gpu 1 two 3\n"); err == nil {
		t.Error("a line that is none was taken")
	}
}

// A machine that lacks something has fewer tests pass, and more skip; none may
// have gone away.
func TestManifestAllowsForSkips(t *testing.T) {
	out, err := runOn(t, events, "gpu 20 0 2\n")
	if err != nil || !strings.Contains(out, "note gpu: 1 tests passed instead of 20, 1 skipped instead of 0") {
		t.Errorf("one more skips: %v\n%s", err, out)
	}
	if out, err := runOn(t, events, "gpu 20 1 2\n"); err == nil || !strings.Contains(out, "FEWER gpu: 1 tests passed") {
		t.Errorf("no more skip: %v\n%s", err, out)
	}
	if out, err := runOn(t, events, "gpu 1 0 3\n"); err == nil || !strings.Contains(out, "FEWER gpu: 2 tests at the top level, the manifest has 3") {
		t.Errorf("one test fewer: %v\n%s", err, out)
	}
}

// What is written is what is read.
func TestUpdate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "suites.txt")
	for _, update := range []bool{true, false} {
		var out strings.Builder
		if err := run(path, update, strings.NewReader(events), &out); err != nil {
			t.Errorf("update %v: %v\n%s", update, err, &out)
		}
	}
	if got, err := read(path); err != nil || got["gpu"] != (line{passed: 1, skipped: 1, top: 2}) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestFailuresAreFailures(t *testing.T) {
	failed := strings.ReplaceAll(events, `"pass"`, `"fail"`)
	if out, err := runOn(t, failed, ""); err == nil {
		t.Errorf("a failed test went through:\n%s", out)
	}
}
