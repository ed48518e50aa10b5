package gputest

import (
	"encoding/json"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
)

// A Difference is an outcome in which the software GPU may differ from recorded
// hardware. Steps is a pattern of path.Match for "case/step".
type Difference struct {
	Steps  string
	Reason string
}

// Replay runs the suite and compares the outcomes with a record of hardware.
// Every difference must be in accepted, and every entry of accepted must match
// one. Of a record made with another suite, only common steps are compared.
func Replay(t *testing.T, open Opener, file string, accepted []Difference) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var want Record
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	r := runAll(t, open, "", inDriver(open))
	for _, complaint := range compare(r.rec, want, accepted) {
		t.Errorf("%s (%s): %s", file, want.Driver, complaint)
	}
	if want.Suite != r.rec.Suite {
		t.Logf("%s was recorded with another suite (%s, now %s), so only common steps were compared: record it again", file, want.Suite, r.rec.Suite)
	}
}

// compare lists the differences between got and want that are not accepted. A
// step that only one of them has is a difference, unless the other skipped its
// case or the suites differ.
func compare(got, want Record, accepted []Difference) []string {
	var complaints []string
	needed := make([]bool, len(accepted))
	complain := func(step, what string) {
		for i, a := range accepted {
			if ok, err := path.Match(a.Steps, step); ok && err == nil {
				needed[i] = true
				return
			}
		}
		complaints = append(complaints, step+": "+what)
	}
	same := got.Suite == want.Suite
	for step, w := range want.Outcomes {
		g, ok := got.Outcomes[step]
		switch {
		case !ok && same && !got.skipped(step):
			complain(step, "was "+w+", is no longer tried")
		case ok && g != w:
			complain(step, "was "+w+", is "+g)
		}
	}
	for step, g := range got.Outcomes {
		if _, ok := want.Outcomes[step]; !ok && same && !want.skipped(step) {
			complain(step, "is "+g+", was not recorded")
		}
	}
	slices.Sort(complaints)
	for i, a := range accepted {
		if !needed[i] {
			complaints = append(complaints, a.Steps+": accepted as different ("+a.Reason+"), but does not differ")
		}
	}
	return complaints
}

func (r *Record) skipped(step string) bool {
	name, _, _ := strings.Cut(step, "/")
	_, ok := r.Skipped[name]
	return ok
}
