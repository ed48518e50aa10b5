package suite

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/culvert-io/culvert/lab"
	"github.com/culvert-io/culvert/lab/internal/job"
)

// Outcomes of a suite.
const (
	OK   = "ok"
	Fail = "FAIL"
	Skip = "skip"
)

// A Result is one line of the report.
type Result struct {
	Name    string  `json:"name"`
	Package string  `json:"package"`
	Outcome string  `json:"outcome"`
	Seconds float64 `json:"seconds"`
	Passed  int     `json:"passed"` // top-level tests
	Failed  int     `json:"failed"`
	Skipped int     `json:"skipped"`
	Boots   int     `json:"boots,omitempty"`
	Reason  string  `json:"reason,omitempty"` // of a failure or a skip
	Output  string  `json:"output,omitempty"` // of a failure
	// Reported are the lines of inside.Report: measurements without a limit.
	Reported []string `json:"reported,omitempty"`
}

func (r Result) String() string {
	s := fmt.Sprintf("%-4s  %-28s %6.1fs  %d passed", r.Outcome, r.Name, r.Seconds, r.Passed)
	if r.Failed > 0 {
		s += fmt.Sprintf(", %d failed", r.Failed)
	}
	if r.Skipped > 0 {
		s += fmt.Sprintf(", %d skipped", r.Skipped)
	}
	if r.Boots > 1 {
		s += fmt.Sprintf(", %d boots", r.Boots)
	}
	if r.Reason != "" {
		s += ": " + r.Reason
	}
	for _, line := range r.Reported {
		s += "\n      " + line
	}
	return s
}

// A Runner runs suites sequentially and compiles each package once.
type Runner struct {
	lab      *lab.Lab
	dir      string          // compiled tests
	binaries map[string]bool // names of those that are built
}

// NewRunner returns a Runner that starts its guests in l.
func NewRunner(l *lab.Lab) (*Runner, error) {
	dir, err := os.MkdirTemp("", "culvert-suites-")
	if err != nil {
		return nil, err
	}
	return &Runner{l, dir, map[string]bool{}}, nil
}

// Close removes the compiled tests.
func (r *Runner) Close() error { return os.RemoveAll(r.dir) }

// Run runs one suite.
func (r *Runner) Run(ctx context.Context, s Suite) Result {
	start := time.Now()
	res := Result{Name: s.Name, Package: s.Package, Outcome: OK}
	var out bytes.Buffer
	err := r.run(ctx, s, &res, &out)
	res.Seconds = time.Since(start).Seconds()
	if errors.Is(err, errNeedsKernel) || errors.Is(err, lab.ErrNoVerbs) || errors.Is(err, lab.ErrNoPerftest) {
		res.Outcome, res.Reason = Skip, err.Error()
	} else if err != nil {
		reason, more, _ := strings.Cut(err.Error(), "\n")
		res.Outcome, res.Reason, res.Output = Fail, reason, interesting(out.String())+more
	}
	return res
}

var errNeedsKernel = errors.New("needs a kernel with")

func (r *Runner) run(ctx context.Context, s Suite, res *Result, out *bytes.Buffer) error {
	if s.Needs.Name != "" {
		if ok, err := r.lab.Kernel.Has(s.Needs); err != nil || !ok {
			return cmp.Or(err, fmt.Errorf("%w %s (make lab-kernel builds one)", errNeedsKernel, s.Needs.Name))
		}
	}
	binary, dir, err := r.compile(ctx, s)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout())
	defer cancel()
	c := lab.Command{
		Args: append([]string{binary, "-test.v"}, s.flags()...),
		Env:  s.Env, Dir: dir, Stdout: out, Stderr: out,
	}
	got, err := r.start(ctx, s, c, out)
	res.Boots = got.Boots
	res.count(out.String())
	if err != nil {
		return err
	}
	return s.judge(*res, got.ExitCode)
}

// start runs a command in the suite's guest or guests. The result of a pair is that of
// the first guest, unless the second failed; its output then follows.
func (r *Runner) start(ctx context.Context, s Suite, c lab.Command, out *bytes.Buffer) (lab.Result, error) {
	if !s.Pair {
		return r.lab.Run(ctx, s.Guest, c)
	}
	var other bytes.Buffer
	second := c
	second.Stdout, second.Stderr = &other, &other
	results, err := r.lab.RunPair(ctx, s.Guest, [2]lab.Command{c, second})
	got := results[0]
	got.Boots += results[1].Boots
	if code := results[1].ExitCode; err != nil || code != 0 || got.ExitCode != 0 {
		fmt.Fprintf(out, "second guest (exit code %d):\n%s", code, indent(other.String()))
		got.ExitCode = max(got.ExitCode, code)
	}
	return got, err
}

// indent keeps results of tests from being counted.
func indent(s string) string { return "  " + strings.ReplaceAll(s, "\n", "\n  ") + "\n" }

// flags select the suite's tests in a test binary. A test that hangs ends before
// its guest is stopped, so that its stacks are printed.
func (s Suite) flags() []string {
	flags := []string{"-test.run=" + s.Run, "-test.timeout=" + (s.timeout() * 3 / 4).String()}
	if s.Skip != "" {
		flags = append(flags, "-test.skip="+s.Skip)
	}
	if s.Short {
		flags = append(flags, "-test.short")
	}
	return flags
}

// judge returns why a run that reached its end failed.
func (s Suite) judge(res Result, exitCode int) error {
	switch {
	case exitCode != 0:
		return fmt.Errorf("exit code %d", exitCode)
	case res.Passed < s.Min:
		return fmt.Errorf("%d tests passed, want at least %d", res.Passed, s.Min)
	}
	return nil
}

// compile builds a suite's package and finds its directory.
func (r *Runner) compile(ctx context.Context, s Suite) (binary, dir string, err error) {
	pkg := s.Package
	if dir, err = lab.PackageDir(ctx, pkg); err != nil {
		return "", "", err
	}
	name, build := strings.ReplaceAll(pkg, "/", "_")+".test", lab.GoBuild
	if s.Guest.Verbs {
		name, build = "loader_"+name, lab.GoBuildLoader
	}
	binary = filepath.Join(r.dir, name)
	if r.binaries[name] {
		return binary, dir, nil
	}
	if err := build(ctx, "test", "-c", "-o", binary, pkg); err != nil {
		return "", "", err
	}
	r.binaries[name] = true
	return binary, dir, nil
}

var noise = regexp.MustCompile(`^\s*(=== (RUN|PAUSE|CONT|NAME) |--- (PASS|SKIP): |` + job.Report + `)`)

// interesting removes lines about tests that did not fail.
func interesting(out string) string {
	var b strings.Builder
	for line := range strings.Lines(out) {
		if !noise.MatchString(line) {
			b.WriteString(line)
		}
	}
	return b.String()
}

// count reads the verbose output of a test binary. Subtests, which are indented,
// do not count.
func (r *Result) count(out string) {
	for line := range strings.Lines(out) {
		switch {
		case strings.HasPrefix(line, "--- PASS: "):
			r.Passed++
		case strings.HasPrefix(line, "--- FAIL: "):
			r.Failed++
		case strings.HasPrefix(line, "--- SKIP: "):
			r.Skipped++
		case strings.HasPrefix(line, job.Report):
			r.Reported = append(r.Reported, strings.TrimSpace(line[len(job.Report):]))
		}
	}
}
