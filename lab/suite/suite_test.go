package suite

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestTable(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range All() {
		if seen[s.Name] {
			t.Errorf("%s stands twice in the table", s.Name)
		}
		seen[s.Name] = true
		if s.Min < 1 {
			t.Errorf("%s would pass without a test", s.Name)
		}
		if _, err := regexp.Compile(s.Run); err != nil {
			t.Errorf("%s: %v", s.Name, err)
		}
		if err := s.Guest.Validate(); err != nil {
			t.Errorf("%s: %v", s.Name, err)
		}
		if got, err := Named(s.Name); err != nil || got.Name != s.Name {
			t.Errorf("Named(%s) = %s, %v", s.Name, got.Name, err)
		}
	}
	if _, err := Named("nonsense"); err == nil {
		t.Error("a suite that does not exist was found")
	}
}

// The packages of the table are those that suites.txt lists for the lab.
func TestListedSuites(t *testing.T) {
	text, err := os.ReadFile("../../suites.txt")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); !strings.HasPrefix(line, "#") && slices.Contains(f[1:], "lab") {
			want = append(want, module+"/"+f[0])
		}
	}
	var got []string
	for _, s := range All() {
		got = append(got, s.Package)
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, slices.Compact(got)); diff != "" {
		t.Errorf("packages of the table (-suites.txt +table):\n%s", diff)
	}
}

func TestCount(t *testing.T) {
	const out = `=== RUN   TestA
=== RUN   TestA/sub
--- PASS: TestA (0.01s)
    --- PASS: TestA/sub (0.00s)
--- SKIP: TestB (0.00s)
    b_test.go:1: needs a thing
--- FAIL: TestC (0.00s)
--- PASS: TestD (0.00s)
LAB REPORT: 3 apples
FAIL
`
	var r Result
	r.count(out)
	if diff := cmp.Diff(Result{Passed: 2, Failed: 1, Skipped: 1, Reported: []string{"3 apples"}}, r); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff("    b_test.go:1: needs a thing\n--- FAIL: TestC (0.00s)\nFAIL\n", interesting(out)); diff != "" {
		t.Errorf("interesting output (-want +got):\n%s", diff)
	}
}

func TestFlags(t *testing.T) {
	got := Suite{Run: "A", Skip: "B", Short: true}.flags()
	if diff := cmp.Diff([]string{"-test.run=A", "-test.timeout=4m30s", "-test.skip=B", "-test.short"}, got); diff != "" {
		t.Errorf("flags (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"-test.run=", "-test.timeout=45s"}, Suite{Timeout: time.Minute}.flags()); diff != "" {
		t.Errorf("flags of a plain suite (-want +got):\n%s", diff)
	}
}

func TestSoak(t *testing.T) {
	s := Suite{Env: make([]string, 0, 4), Short: true}
	got := s.Soak()
	if got.Short || got.timeout() <= s.timeout() || !slices.Contains(got.Env, "CULVERT_CRASH_POINTS=all") {
		t.Errorf("soak: %+v", got)
	}
	if len(s.Env) != 0 || !s.Short {
		t.Errorf("the suite itself was changed: %+v", s)
	}
}

func TestJudge(t *testing.T) {
	s := Suite{Min: 2}
	if err := s.judge(Result{Passed: 2, Skipped: 5}, 0); err != nil {
		t.Errorf("enough tests: %v", err)
	}
	if err := s.judge(Result{Passed: 1, Skipped: 1}, 0); err == nil {
		t.Error("a suite whose tests skip passed")
	}
	if err := s.judge(Result{Passed: 9}, 1); err == nil {
		t.Error("a suite with a failing exit code passed")
	}
}

func TestResultLine(t *testing.T) {
	r := Result{Name: "peer", Outcome: Fail, Seconds: 2.34, Passed: 1, Failed: 2, Skipped: 3, Boots: 2, Reason: "exit code 1"}
	want := "FAIL  peer                            2.3s  1 passed, 2 failed, 3 skipped, 2 boots: exit code 1"
	if got := r.String(); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
