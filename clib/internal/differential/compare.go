package differential

import (
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/culvert-io/culvert/cufile/cufiletest"
)

// A Line is one call of a case with both libraries: the answers, and the damage if
// memory or file are not as expected.
type Line struct {
	Case     string
	Step     int
	Function string
	Ours     Outcome
	Theirs   Outcome
}

// An Outcome is an answer, as "error 5014" or "4096 bytes", and the damage.
type Outcome struct{ Answer, Damage string }

// Same reports whether both libraries gave the same answer.
func (l *Line) Same() bool { return l.Ours.Answer == l.Theirs.Answer }

// functions are cuFile's functions by the calls of package cufiletest. The other
// calls, which truncate and free, are the operating system's and CUDA's.
var functions = map[string]string{
	"register":          "cuFileHandleRegister",
	"deregister":        "cuFileHandleDeregister",
	"register-buffer":   "cuFileBufRegister",
	"deregister-buffer": "cuFileBufDeregister",
	"read":              "cuFileRead",
	"write":             "cuFileWrite",
}

const (
	never = "not reached" // a case ended before
	none  = "not cuFile"
)

// Lines pairs two recordings. A case that one library ended early continues with
// "not reached".
func Lines(ours, theirs *cufiletest.Record) []Line {
	steps := map[string][]cufiletest.Step{}
	for _, c := range cufiletest.Cases() {
		steps[c.Name] = c.Steps
	}
	var lines []Line
	for _, name := range slices.Sorted(maps.Keys(theirs.Cases)) {
		o, t := ours.Cases[name], theirs.Cases[name]
		for i := range max(len(o), len(t)) {
			l := Line{Case: name, Step: i, Ours: outcome(o, i), Theirs: outcome(t, i)}
			if s, ok := steps[name]; ok {
				l.Function = functionOf(s, i)
			} else {
				l.Function = label(o, t, i)
			}
			lines = append(lines, l)
		}
	}
	return lines
}

func functionOf(steps []cufiletest.Step, i int) string {
	if i < len(steps) {
		if f, ok := functions[steps[i].Call.String()]; ok {
			return f
		}
	}
	return none
}

// label is the function that outcome i names, in cases that are written in C.
func label(o, t []string, i int) string {
	for _, list := range [][]string{o, t} {
		if i >= len(list) {
			continue
		}
		if f, _, ok := strings.Cut(list[i], ": "); ok && f != "died" {
			return f
		}
	}
	return none
}

// outcome parses "read: 10 bytes, the memory differs at 7".
func outcome(list []string, i int) Outcome {
	if i >= len(list) {
		return Outcome{Answer: never}
	}
	_, text, ok := strings.Cut(list[i], ": ")
	if !ok || strings.HasPrefix(list[i], "died: ") {
		return Outcome{Answer: list[i]}
	}
	answer, damage, _ := strings.Cut(text, ", ")
	return Outcome{answer, damage}
}

// A Reason explains why lines differ whose case, function and answers match the
// patterns, as in path.Match.
type Reason struct {
	Cases, Function string
	Ours, Theirs    string
	Why             string
}

func (r *Reason) covers(l *Line) bool {
	match := func(pattern, s string) bool {
		ok, err := path.Match(pattern, s)
		return ok && err == nil
	}
	return match(r.Cases, l.Case) && match(r.Function, l.Function) && match(r.Ours, l.Ours.Answer) && match(r.Theirs, l.Theirs.Answer)
}

// A Tally counts the lines of a function.
type Tally struct{ Lines, Same int }

// Share is the fraction of lines that are the same.
func (t Tally) Share() float64 {
	if t.Lines == 0 {
		return 1
	}
	return float64(t.Same) / float64(t.Lines)
}

// A Report is the comparison of two recordings.
type Report struct {
	Total      Tally
	Functions  map[string]Tally
	Damage     []Line         // where theirs left damage and ours did not
	OurDamage  []Line         // where ours did
	Explained  map[string]int // lines that differ, by reason
	Unexpected []Line         // those without one
	Idle       []Reason       // reasons that match no line
}

// Compare compares line by line. In a case, calls that one library did not reach
// follow from the difference before them.
func Compare(ours, theirs *cufiletest.Record, reasons []Reason) *Report {
	r := &Report{Functions: map[string]Tally{}, Explained: map[string]int{}}
	needed := make([]bool, len(reasons))
	before := ""
	for _, l := range Lines(ours, theirs) {
		if l.Function == none {
			continue
		}
		if l.Theirs.Answer != never { // what has no answer cannot have the same
			r.count(l)
		}
		switch {
		case l.Ours.Damage != "":
			r.OurDamage = append(r.OurDamage, l)
		case l.Theirs.Damage != "":
			r.Damage = append(r.Damage, l)
		}
		if l.Same() {
			continue
		}
		if before == l.Case && (l.Ours.Answer == never || l.Theirs.Answer == never) {
			r.Explained[follows]++
			continue
		}
		before = l.Case
		i := slices.IndexFunc(reasons, func(x Reason) bool { return x.covers(&l) })
		if i < 0 {
			r.Unexpected = append(r.Unexpected, l)
			continue
		}
		needed[i] = true
		r.Explained[reasons[i].Why]++
	}
	for i, x := range reasons {
		if !needed[i] {
			r.Idle = append(r.Idle, x)
		}
	}
	return r
}

func (r *Report) count(l Line) {
	t := r.Functions[l.Function]
	t.Lines++
	r.Total.Lines++
	if l.Same() {
		t.Same++
		r.Total.Same++
	}
	r.Functions[l.Function] = t
}

// Write prints the report.
func (r *Report) Write(w io.Writer) {
	row := func(name string, t Tally) {
		fmt.Fprintf(w, "%-24s %5d lines, %5d the same, %5.1f %%\n", name, t.Lines, t.Same, 100*t.Share())
	}
	for _, name := range slices.Sorted(maps.Keys(r.Functions)) {
		row(name, r.Functions[name])
	}
	row("all", r.Total)
	fmt.Fprintf(w, "memory or file damaged: ours %d, theirs %d\n", len(r.OurDamage), len(r.Damage))
	for _, why := range slices.Sorted(maps.Keys(r.Explained)) {
		fmt.Fprintf(w, "%5d  %s\n", r.Explained[why], why)
	}
	for _, l := range r.Unexpected {
		fmt.Fprintf(w, "unexpected: %v\n", l)
	}
	for _, l := range r.OurDamage {
		fmt.Fprintf(w, "ours is damaged: %v\n", l)
	}
}

// String is a line of a report.
func (l Line) String() string {
	return fmt.Sprintf("%s, step %d, %s: ours %s, theirs %s", l.Case, l.Step, l.Function, l.Ours, l.Theirs)
}

// String is the answer, and the damage after it.
func (o Outcome) String() string {
	if o.Damage == "" {
		return o.Answer
	}
	return o.Answer + ", " + o.Damage
}
