// Command suites reads the output of go test -json, prints a line per package
// with what it ran, and holds the numbers to a manifest: a suite that runs fewer
// tests than it did is a failure, so that tests cannot quietly go away. Skips
// are shown with their reason.
//
//	go test -json ./... | suites manifest.txt
//
// A line of the manifest is a package path below the module, the least number of
// tests that must pass there, how many skip, and how many tests there are at the
// top level. Where more skip than that, because the machine lacks something, fewer
// may pass, but all tests must still be there. With -update the manifest is
// rewritten.
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
	update := flag.Bool("update", false, "rewrite the manifest from this run")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: go test -json ./... | suites [-update] MANIFEST")
		os.Exit(2)
	}
	if err := run(flag.Arg(0), *update, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "suites:", err)
		os.Exit(1)
	}
}

// An event is a line of go test -json.
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64
	FailedBuild, ImportPath       string
}

// A suite is what one package did.
type suite struct {
	passed, failed, skipped int
	top                     int // of these, not below another
	elapsed                 float64
	verdict                 string
	output                  map[string]*strings.Builder // by test
	skips, failures         []string
}

func run(manifest string, update bool, in io.Reader, out io.Writer) error {
	suites, builds, err := collect(in)
	if err != nil {
		return err
	}
	bad := report(out, suites)
	if len(builds) > 0 {
		fmt.Fprint(out, strings.Join(builds, ""))
	}
	if update {
		return write(manifest, suites)
	}
	least, err := read(manifest)
	if err != nil {
		return err
	}
	for _, pkg := range slices.Sorted(maps.Keys(least)) {
		s := suites[pkg]
		if s == nil {
			s = new(suite)
		}
		got, want := s.passed, least[pkg]
		switch {
		case s.top < want.top:
			fmt.Fprintf(out, "FEWER %s: %d tests at the top level, the manifest has %d\n", pkg, s.top, want.top)
			bad++
		case got >= want.passed:
		case s.skipped > want.skipped && want.top > 0:
			fmt.Fprintf(out, "note %s: %d tests passed instead of %d, %d skipped instead of %d\n", pkg, got, want.passed, s.skipped, want.skipped)
		default:
			fmt.Fprintf(out, "FEWER %s: %d tests passed, the manifest wants %d\n", pkg, got, want.passed)
			bad++
		}
	}
	total(out, suites)
	if bad > 0 {
		return fmt.Errorf("%d packages failed", bad)
	}
	return nil
}

const module = "github.com/culvert-io/culvert"

func collect(in io.Reader) (map[string]*suite, []string, error) {
	suites := map[string]*suite{}
	var builds []string
	sc := bufio.NewScanner(in)
	sc.Buffer(nil, 16<<20)
	for sc.Scan() {
		var e event
		if err := json.Unmarshal(sc.Bytes(), &e); err != nil {
			builds = append(builds, sc.Text()+"\n") // what the go command itself says
			continue
		}
		if e.Action == "build-output" {
			builds = append(builds, e.Output)
			continue
		}
		if e.Package == "" {
			continue
		}
		pkg := strings.TrimPrefix(strings.TrimPrefix(e.Package, module), "/")
		if pkg == "" {
			pkg = "."
		}
		if suites[pkg] == nil {
			suites[pkg] = &suite{output: map[string]*strings.Builder{}}
		}
		suites[pkg].add(e)
	}
	return suites, builds, sc.Err()
}

func (s *suite) add(e event) {
	switch e.Action {
	case "output":
		b := s.output[e.Test]
		if b == nil {
			b = new(strings.Builder)
			s.output[e.Test] = b
		}
		b.WriteString(e.Output)
	case "pass", "fail", "skip":
		s.end(e)
	}
}

func (s *suite) end(e event) {
	if e.Test == "" {
		s.verdict, s.elapsed = e.Action, e.Elapsed
		if e.Action == "fail" && s.failed == 0 && s.output[""] != nil {
			s.failures = append(s.failures, s.output[""].String())
		}
		return
	}
	text := ""
	if b := s.output[e.Test]; b != nil {
		text = b.String()
		delete(s.output, e.Test)
	}
	if !strings.Contains(e.Test, "/") {
		s.top++
	}
	switch e.Action {
	case "pass":
		s.passed++
	case "skip":
		s.skipped++
		s.skips = append(s.skips, e.Test+": "+reason(text))
	case "fail":
		s.failed++
		s.failures = append(s.failures, text)
	}
}

// reason is the line of a skipped test's output that says why.
func reason(text string) string {
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "=== ") && !strings.HasPrefix(strings.TrimSpace(line), "--- ") {
			return strings.TrimSpace(line)
		}
	}
	return "no reason given"
}

func report(out io.Writer, suites map[string]*suite) (bad int) {
	for _, pkg := range slices.Sorted(maps.Keys(suites)) {
		s := suites[pkg]
		if s.passed+s.failed+s.skipped == 0 && s.verdict != "fail" {
			continue
		}
		fmt.Fprintf(out, "%-4s %-36s %4d passed %3d skipped %7.1fs\n", s.verdict, pkg, s.passed, s.skipped, s.elapsed)
		for _, skip := range s.skips {
			fmt.Fprintln(out, "     skipped", skip)
		}
		if s.verdict == "fail" {
			bad++
			fmt.Fprint(out, strings.Join(s.failures, ""))
		}
	}
	return bad
}

func total(out io.Writer, suites map[string]*suite) {
	var p, f, k int
	for _, s := range suites {
		p, f, k = p+s.passed, f+s.failed, k+s.skipped
	}
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", p, f, k)
}

// A line of the manifest, but for the package.
type line struct{ passed, skipped, top int }

func read(path string) (map[string]line, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	least := map[string]line{}
	for row := range strings.Lines(string(text)) {
		if strings.TrimSpace(row) == "" || strings.HasPrefix(row, "#") {
			continue
		}
		var pkg string
		var l line
		// A line without the last two numbers allows for no skips.
		fields := len(strings.Fields(row))
		if n, _ := fmt.Sscan(row, &pkg, &l.passed, &l.skipped, &l.top); n != fields || n != 2 && n != 4 {
			return nil, fmt.Errorf("%s: bad line %q: want a package and three numbers", path, strings.TrimSpace(row))
		}
		least[pkg] = l
	}
	return least, nil
}

func write(path string, suites map[string]*suite) error {
	var b strings.Builder
	b.WriteString("# By package: the least number of tests that must pass, how many skip, and tests at the top level. Rewritten by: make manifest\n")
	for _, pkg := range slices.Sorted(maps.Keys(suites)) {
		if s := suites[pkg]; s.passed > 0 {
			fmt.Fprintf(&b, "%-40s %4d %3d %4d\n", pkg, s.passed, s.skipped, s.top)
		}
	}
	return os.WriteFile(path, []byte(b.String()), 0o644)
}
