package main

import (
	"io"
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
{"Action":"skip","Package":"github.com/culvert-io/culvert/notests","Elapsed":0}
`

func TestRun(t *testing.T) {
	for _, tt := range []struct {
		name, list, events, backend string
		want                        string // in the output or the error
		bad                         bool
	}{
		{"as listed", "# all\ngpu unit race\nlab lab\n", events, "unit", "1 passed, 0 failed, 1 skipped", false},
		{"reason of a skip", "gpu unit\n", events, "unit", "skipped TestB: b_test.go:1: needs a GPU", false},
		{"did not run", "gpu unit\nroute unit\n", events, "unit", "BAD  route: no test passed", true},
		{"all skipped", "gpu unit\n", strings.Replace(events, `"pass"`, `"skip"`, 1), "unit", "BAD  gpu: no test passed", true},
		{"other backend", "gpu unit\nroute race\n", events, "race", "BAD  route: no test passed", true},
		{"no reason", "gpu unit\n", strings.Replace(events, "    b_test.go:1: needs a GPU", "--- SKIP: TestB", 1), "unit", "TestB was skipped without a reason", true},
		{"failure", "gpu unit\n", strings.ReplaceAll(events, `"pass"`, `"fail"`), "unit", "BAD  gpu: failed", true},
		{"no backend", "gpu\n", events, "unit", "package gpu has no backend", true},
		{"unknown backend", "gpu unit\n", events, "mars", `no package runs on backend "mars"`, true},
		{"build output", "gpu unit\n", "go: cannot find module\n" + events, "unit", "go: cannot find module", false},
	} {
		path := filepath.Join(t.TempDir(), "suites.txt")
		if err := os.WriteFile(path, []byte(tt.list), 0o600); err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		err := run(path, tt.backend, strings.NewReader(tt.events), &out, nil)
		if err != nil {
			out.WriteString(err.Error())
		}
		if (err != nil) != tt.bad || !strings.Contains(out.String(), tt.want) {
			t.Errorf("%s: want %q in:\n%s", tt.name, tt.want, &out)
		}
	}
}

// A package that fails once is reported and passes; one that fails again, or one of
// many, fails.
func TestRerun(t *testing.T) {
	list := filepath.Join(t.TempDir(), "suites.txt")
	if err := os.WriteFile(list, []byte("gpu unit\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	failing := strings.ReplaceAll(events, `"pass"`, `"fail"`)
	var many strings.Builder
	for _, pkg := range []string{"gpu", "a", "b", "c"} {
		many.WriteString(strings.ReplaceAll(failing, "culvert/gpu", "culvert/"+pkg))
	}
	for _, tt := range []struct {
		name, first, second string
		want                string
		bad                 bool
	}{
		{"passes alone", failing, events, "UNSTABLE gpu failed at first", false},
		{"fails again", failing, failing, "BAD  gpu: failed", true},
		{"dies again", failing, "", "BAD  gpu: failed", true},
		{"too many", many.String(), events, "BAD  gpu: failed", true},
		{"passed at once", events, failing, "1 passed, 0 failed, 1 skipped", false},
	} {
		var out strings.Builder
		err := run(list, "unit", strings.NewReader(tt.first), &out, func(string) (io.Reader, error) {
			return strings.NewReader(tt.second), nil
		})
		if (err != nil) != tt.bad || !strings.Contains(out.String(), tt.want) {
			t.Errorf("%s: error %v, want %q in:\n%s", tt.name, err, tt.want, &out)
		}
	}
}

func TestRunAlone(t *testing.T) {
	for _, command := range []string{"echo", "false"} {
		r, err := runAlone([]string{command, "-x"})("gpu")
		if err != nil {
			t.Fatal(err)
		}
		out, _ := io.ReadAll(r)
		if command == "echo" && string(out) != "-x ./gpu\n" {
			t.Errorf("%s: got %q", command, out)
		}
	}
	if _, err := runAlone([]string{"/nonexistent"})("gpu"); err == nil {
		t.Error("a command that does not exist: no error")
	}
}
