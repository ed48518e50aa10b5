package gputest

import (
	"encoding/json"
	"flag"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var childFile = flag.String("gputest.child", "", "for the suite's own use: run cases that lose a context here, and write the outcomes to this `file`")

// runChild runs the case of this test in its own process and adds its record.
func runChild(t *testing.T, r *recorder, c testCase) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "outcomes.json")
	out, err := exec.CommandContext(t.Context(), exe, "-test.run="+onlyTest(t.Name()), "-test.v", "-gputest.child="+file).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("the case wrote no outcomes: %v\n%s", err, out)
	}
	var theirs Record
	if err := json.Unmarshal(text, &theirs); err != nil {
		t.Fatal(err)
	}
	r.merge(theirs)
	if why, ok := theirs.Skipped[c.name]; ok {
		t.Skip(why)
	}
}

// onlyTest is a pattern for -test.run that matches one test.
func onlyTest(name string) string {
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}

// beChild runs the case that -test.run selects.
func beChild(t *testing.T, open Opener) {
	for _, c := range lostCases {
		t.Run(c.name, func(t *testing.T) {
			d := open(t)
			r := newRecorder(t, d)
			defer r.save(t, *childFile) // also if the case fails early
			c.run(newBench(t, d, r, c.name))
		})
	}
}

// merge adds the record of another process.
func (r *recorder) merge(theirs Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.Copy(r.rec.Outcomes, theirs.Outcomes)
	maps.Copy(r.rec.Skipped, theirs.Skipped)
	maps.Copy(r.rec.Facts, theirs.Facts)
}
