// Command suites reads the output of go test -json, prints one line per package,
// and compares the packages with a list of suites:
//
//	go test -json ./... | suites -on unit suites.txt
//
// A line of the list is the path of a package below the module and the backends
// on which its tests must run. It is an error if a listed suite did not run, if
// none of its tests passed, or if a test was skipped without a reason.
//
// With a command after the list, packages that failed run once more, alone:
//
//	go test -json ./... | suites -on unit suites.txt go test -count=1 -json
//
// A package that passes then is reported as UNSTABLE, with the output of its first
// run: a defect to mend, but not one that hides what the other packages did.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

func main() {
	backend := flag.String("on", "unit", "backend that the tests ran on")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: go test -json ./... | suites [-on BACKEND] LIST [COMMAND...]")
		os.Exit(2)
	}
	if err := run(flag.Arg(0), *backend, os.Stdin, os.Stdout, runAlone(flag.Args()[1:])); err != nil {
		fmt.Fprintln(os.Stderr, "suites:", err)
		os.Exit(1)
	}
}

// An event is a line of go test -json.
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64
}

// A suite is the result of one package.
type suite struct {
	passed, failed, skipped int
	output                  map[string]string // by test
	lines                   []string          // of the report
	problems                []string
}

func run(list, backend string, in io.Reader, out io.Writer, again rerun) error {
	listed, err := readList(list, backend)
	if err != nil {
		return err
	}
	suites, err := collect(in, out)
	if err != nil {
		return err
	}
	if err := rerunFailed(suites, again, out); err != nil {
		return err
	}
	for _, pkg := range listed {
		if suites[pkg] == nil {
			suites[pkg] = &suite{}
		}
		if s := suites[pkg]; s.passed == 0 {
			s.problems = append(s.problems, "no test passed")
		}
	}
	var passed, failed, skipped, bad int
	for _, pkg := range slices.Sorted(maps.Keys(suites)) {
		s := suites[pkg]
		for _, line := range s.lines {
			fmt.Fprintln(out, line)
		}
		for _, problem := range s.problems {
			fmt.Fprintf(out, "BAD  %s: %s\n", pkg, problem)
		}
		passed, failed, skipped = passed+s.passed, failed+s.failed, skipped+s.skipped
		bad += min(len(s.problems), 1)
	}
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", passed, failed, skipped)
	if bad > 0 {
		return fmt.Errorf("%d suites failed", bad)
	}
	return nil
}

// readList returns the packages that must run on a backend.
func readList(path, backend string) (list []string, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0 || strings.HasPrefix(line, "#"):
		case len(fields) == 1:
			return nil, fmt.Errorf("%s: package %s has no backend", path, fields[0])
		case slices.Contains(fields[1:], backend):
			list = append(list, fields[0])
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s: no package runs on backend %q", path, backend)
	}
	return list, nil
}

const module = "github.com/culvert-io/culvert"

// collect reads events. Output of the go command and the compiler goes to out.
func collect(in io.Reader, out io.Writer) (map[string]*suite, error) {
	suites := map[string]*suite{}
	sc := bufio.NewScanner(in)
	sc.Buffer(nil, 16<<20)
	for sc.Scan() {
		var e event
		if err := json.Unmarshal(sc.Bytes(), &e); err != nil {
			fmt.Fprintln(out, sc.Text())
			continue
		}
		if e.Package == "" {
			fmt.Fprint(out, e.Output)
			continue
		}
		pkg := "."
		if e.Package != module {
			pkg = strings.TrimPrefix(e.Package, module+"/")
		}
		if suites[pkg] == nil {
			suites[pkg] = &suite{output: map[string]string{}}
		}
		suites[pkg].add(pkg, e)
	}
	return suites, sc.Err()
}

func (s *suite) add(pkg string, e event) {
	switch e.Action {
	case "output":
		s.output[e.Test] += e.Output
	case "pass", "fail", "skip":
		if e.Test == "" {
			s.end(pkg, e)
		} else {
			s.endTest(e)
		}
	}
}

func (s *suite) end(pkg string, e event) {
	if e.Action == "fail" {
		s.problems = append(s.problems, "failed")
		if s.failed == 0 {
			s.lines = append(s.lines, s.output[""]) // a test that did not build, or a panic
		}
	}
	if s.passed+s.failed+s.skipped > 0 {
		summary := fmt.Sprintf("%-4s %-36s %4d passed %3d skipped %7.1fs", e.Action, pkg, s.passed, s.skipped, e.Elapsed)
		s.lines = slices.Insert(s.lines, 0, summary)
	}
}

func (s *suite) endTest(e event) {
	text := s.output[e.Test]
	delete(s.output, e.Test)
	switch e.Action {
	case "pass":
		s.passed++
	case "fail":
		s.failed++
		s.lines = append(s.lines, strings.TrimRight(text, "\n"))
	case "skip":
		s.skipped++
		why := reason(text)
		if why == "" {
			s.problems = append(s.problems, e.Test+" was skipped without a reason")
		}
		s.lines = append(s.lines, "     skipped "+e.Test+": "+why)
	}
}

// reason returns the first line that a skipped test printed.
func reason(text string) string {
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "=== ") && !strings.HasPrefix(strings.TrimSpace(line), "--- ") {
			return strings.TrimSpace(line)
		}
	}
	return ""
}
