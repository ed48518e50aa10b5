package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const runs = `{"pattern":"read","block":4096,"threads":1,"batch":1,"engine":"culvert/bar","gb_per_second":2,"latency_us":{"p50":1.5},"receipt":{"route":"bar"}}
{"pattern":"read","block":4096,"threads":1,"batch":1,"engine":"libcufile","gb_per_second":0.4,"latency_us":{"p50":10}}
{"pattern":"read","block":4096,"threads":1,"batch":1,"engine":"culvert/bar","gb_per_second":4,"latency_us":{"p50":2},"receipt":{"route":"bar"}}
{"pattern":"read","block":4096,"threads":1,"batch":1,"engine":"culvert/bar","gb_per_second":3,"latency_us":{"p50":1.7},"receipt":{"route":"bar"}}
`

func TestReport(t *testing.T) {
	name := filepath.Join(t.TempDir(), "r.json")
	if err := os.WriteFile(name, []byte(runs), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := run([]string{name}, &out); err != nil {
		t.Fatal(err)
	}
	want := "| read 4K, 1 caller, warm | culvert, bar | 3 (2–4) | 0.000 | 0 | 1.7 | 0.000 | 7.50 ×, 0.17 of its latency |\n"
	if !strings.Contains(out.String(), want) {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}

func TestRoutesOfAReceipt(t *testing.T) {
	for want, r := range map[string]receipt{
		"ring":     {Route: "ring"},
		"bar":      {Route: "bar", Bytes: 100, By: map[string]int64{"bar": 96, "ring": 4}},
		"bar+ring": {Route: "ring", Bytes: 100, By: map[string]int64{"ring": 60, "bar": 40}},
	} {
		if got := r.routes(); got != want {
			t.Errorf("%+v: %q, want %q", r, got, want)
		}
	}
}

func TestSoftwareFiguresAreRefused(t *testing.T) {
	if _, err := read(strings.NewReader(`{"software_machine":true}`)); err == nil {
		t.Error("a figure of the software machine was taken")
	}
}

// The tables in the documentation are those of the raw results beside them.
func TestDocumentIsFresh(t *testing.T) {
	const root = "../../../docs/"
	doc, err := os.ReadFile(root + "performance.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(root + "performance/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no raw results: %v", err)
	}
	for _, f := range files {
		var out strings.Builder
		if err := run([]string{f}, &out); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(doc), out.String()) {
			t.Errorf("docs/performance.md does not hold the tables of %s: put in\n%s", f, out.String())
		}
	}
}
