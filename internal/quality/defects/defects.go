// Package defects runs scripts about defects that are known and not yet fixed: the
// tests stay green, and a fix, or a script that breaks for another reason, is
// noticed.
package defects

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/rogpeppe/go-internal/txtar"
)

// marker begins the comment above a command that fails because of a defect. The
// rest of that section may fail, too; all other sections must pass.
const marker = "# defect: "

// Run runs the scripts of p.Dir and checks that each fails where it says so.
func Run(t *testing.T, p testscript.Params) {
	p.ContinueOnError = true
	p.Deadline, _ = t.Deadline()
	testscript.RunT(recorder{T: t, dir: p.Dir}, p)
}

// A recorder is the T of a script whose failures are expected.
type recorder struct {
	*testing.T
	dir     string
	log     *strings.Builder
	skipped *bool
}

func (r recorder) Run(name string, script func(testscript.T)) {
	r.T.Run(name, func(t *testing.T) {
		t.Parallel()
		r := recorder{t, r.dir, new(strings.Builder), new(bool)}
		ended := make(chan struct{})
		go func() { // FailNow ends this goroutine, not the test
			defer close(ended)
			script(r)
		}()
		<-ended
		if *r.skipped {
			t.Skip(r.log)
		}
		path := filepath.Join(r.dir, name+".txtar")
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, problem := range judge(path, string(txtar.Parse(text).Comment), r.log.String()) {
			t.Error(problem)
		}
		if t.Failed() {
			t.Log(r.log)
		}
	})
}

func (r recorder) Parallel()     {} // the test is already
func (r recorder) Verbose() bool { return false }
func (r recorder) FailNow()      { runtime.Goexit() }
func (r recorder) Log(args ...any) {
	fmt.Fprintln(r.log, args...)
}

func (r recorder) Fatal(args ...any) {
	if r.log == nil { // before the first script
		r.T.Fatal(args...)
	}
	r.Log(args...)
	r.FailNow()
}

func (r recorder) Skip(args ...any) {
	*r.skipped = true
	r.Fatal(args...)
}

// A command is a line of a script that does something.
type command struct {
	line   int
	defect string // the section's, or ""
	first  bool   // of its section
}

// commands lists the commands of a script.
func commands(script string) (list []command) {
	defect, first, above := "", false, ""
	for i, line := range strings.Split(script, "\n") {
		switch {
		case strings.HasPrefix(line, "#"):
			if !strings.HasPrefix(above, "#") { // a comment may go on
				defect, first = "", true
				if text, ok := strings.CutPrefix(line, marker); ok {
					defect = text
				}
			}
		case strings.TrimSpace(line) != "":
			list = append(list, command{i + 1, defect, first})
			first = false
		}
		above = line
	}
	return list
}

// judge returns what is wrong with the log of a script: a defect that is fixed, or
// a failure that is none of the known ones.
func judge(path, script, log string) (problems []string) {
	failed := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^FAIL: (.*?:\d+): `).FindAllStringSubmatch(log, -1) {
		failed[m[1]] = true
	}
	defects := 0
	for _, c := range commands(script) {
		at := fmt.Sprintf("%s:%d", path, c.line)
		if c.defect == "" {
			continue
		}
		if c.first {
			defects++
			if !failed[at] {
				problems = append(problems, fmt.Sprintf("%s: defect %q is fixed: move the script, or this part of it, to testdata/ so that it stays fixed", at, c.defect))
			}
		}
		delete(failed, at)
	}
	for at := range failed {
		problems = append(problems, at+": this fails, and is no known defect")
	}
	if defects == 0 {
		problems = append(problems, fmt.Sprintf("%s: no section begins with %q", path, marker))
	}
	return problems
}
