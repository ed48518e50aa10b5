package cufiletest_test

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/culvert-io/culvert/cufile/cufiletest"
)

// Culvert on the software machine answers as it did on hardware, and as NVIDIA's
// library did but for what is meant.
func TestRecordings(t *testing.T) {
	if testing.Short() {
		t.Skip("needs all cases, a short run plays some")
	}
	ours := &cufiletest.Record{Cases: outcomes(t)}
	for _, c := range []struct {
		name, pattern, need string
		meant               []cufiletest.Difference
	}{
		{"hardware", "culvert-*.json", "run TestSuite on hardware with -cufiletest.record", sinceRecorded},
		{"NVIDIA", "libcufile-*.json", "run TestVendor on hardware with -cufiletest.record", differences},
	} {
		t.Run(c.name, func(t *testing.T) {
			files, err := filepath.Glob(filepath.Join("testdata", c.pattern))
			if err != nil {
				t.Fatal(err)
			}
			if len(files) == 0 {
				t.Skipf("needs a recording testdata/%s: %s", c.pattern, c.need)
			}
			for _, file := range files {
				compare(t, ours, file, c.meant)
			}
		})
	}
}

// sinceRecorded are answers of Culvert that were changed on purpose after they were
// recorded on hardware.
var sinceRecorded = []cufiletest.Difference{
	{"buffer/made-up/plain", "register-buffer: error 5022", "register-buffer: ok", "memory that does not exist is not registered"},
}

func compare(t *testing.T, ours *cufiletest.Record, file string, meant []cufiletest.Difference) {
	t.Helper()
	theirs, err := cufiletest.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	if theirs.Suite != cufiletest.SuiteHash() {
		t.Logf("%s was recorded with other cases (suite %s, now %s): those that it has are compared", file, theirs.Suite, cufiletest.SuiteHash())
	}
	for _, c := range cufiletest.Compare(ours, theirs, meant) {
		t.Errorf("%s (%s): %s", file, theirs.Engine, c)
	}
}

func TestCompare(t *testing.T) {
	rec := func(cases map[string][]string) *cufiletest.Record { return &cufiletest.Record{Cases: cases} }
	ours := rec(map[string][]string{
		"a/1": {"register: ok", "read: 10 bytes"},
		"a/2": {"register: ok", "read: error 5014"},
		"b":   {"register: ok"},
	})
	theirs := rec(map[string][]string{
		"a/1": {"register: ok", "read: 10 bytes"},
		"a/2": {"register: ok", "read: error 5", "read: 7 bytes"},
		"b":   {"register: ok", "read: 1 bytes"},
		"c":   {"register: ok"},
	})
	meant := []cufiletest.Difference{
		{"a/*", "*: error 5014", "*: error 5", "honest"},
		{"a/1", "*", "*", "not so"},
	}
	want := []string{
		`b: ours "nothing", theirs "read: 1 bytes"`,
		`c: recorded, but not played`,
		`a/1: ours "*", theirs "*": expected (not so), but nothing differs so`,
	}
	if d := cmp.Diff(want, cufiletest.Compare(ours, theirs, meant)); d != "" {
		t.Error(d)
	}
}
