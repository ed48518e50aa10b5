package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"

	"github.com/culvert-io/culvert/lab"
	"github.com/culvert-io/culvert/lab/suite"
)

const suitesText = `Usage: lab suites [flags]

Runs the suites, each on a fresh guest, and prints one line for each.

EXIT STATUS
  0  every suite passed or said what it needs
  1  a suite failed; its output was printed

Flags:
`

func runSuites(ctx context.Context, args []string, stdio IO) int {
	fs := newFlags("lab suites", suitesText, stdio)
	pattern := fs.String("run", "", "run only suites whose name matches this regular expression")
	list := fs.Bool("list", false, "print the names and run nothing")
	asJSON := fs.Bool("json", false, "print one JSON object per suite")
	soak := fs.Bool("soak", false, "visit every point of the crash suites and run nothing short; takes long")
	if code := parse(fs, args); code >= 0 {
		return code
	}
	re, err := regexp.Compile(*pattern)
	if err != nil {
		return fail(stdio, err)
	}
	var chosen []suite.Suite
	for _, s := range suite.All() {
		if *soak {
			s = s.Soak()
		}
		if re.MatchString(s.Name) {
			chosen = append(chosen, s)
		}
	}
	if len(chosen) == 0 {
		return fail(stdio, fmt.Errorf("no suite matches %q (lab suites -list shows them)", *pattern))
	}
	if *list {
		for _, s := range chosen {
			fmt.Fprintf(stdio.Out, "%-28s %s\n", s.Name, s.Package)
		}
		return 0
	}
	return runAll(ctx, chosen, *asJSON, stdio)
}

func runAll(ctx context.Context, suites []suite.Suite, asJSON bool, stdio IO) int {
	l, err := lab.Open(ctx, stdio.Err)
	if err != nil {
		return fail(stdio, err)
	}
	r, err := suite.NewRunner(l)
	if err != nil {
		return fail(stdio, err)
	}
	defer r.Close()
	code := 0
	for _, s := range suites {
		res := r.Run(ctx, s)
		if res.Outcome == suite.Fail {
			code = 1
		}
		if err := show(res, asJSON, stdio); err != nil {
			return fail(stdio, err)
		}
		if ctx.Err() != nil {
			return fail(stdio, ctx.Err())
		}
	}
	return code
}

func show(res suite.Result, asJSON bool, stdio IO) error {
	if asJSON {
		return json.NewEncoder(stdio.Out).Encode(res)
	}
	if res.Output != "" {
		fmt.Fprint(stdio.Err, res.Output)
	}
	_, err := fmt.Fprintln(stdio.Out, res)
	return err
}
