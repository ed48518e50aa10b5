package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"regexp"

	"github.com/culvert-io/culvert/lab"
	"github.com/culvert-io/culvert/lab/suite"
)

const suitesText = `Usage: lab suites [flags]

Run the test suites, each in a fresh guest, and print one line for each.

EXIT STATUS
  0  every suite passed, or was skipped with a reason
  1  a suite failed twice; its output was printed

Flags:
`

func runSuites(ctx context.Context, args []string, std stdio) (int, error) {
	var pattern string
	var list, asJSON, soak bool
	if _, err := parse("lab suites", suitesText, args, std, func(fs *flag.FlagSet) {
		fs.StringVar(&pattern, "run", "", "run only suites whose name matches this regular expression")
		fs.BoolVar(&list, "list", false, "print the names and run nothing")
		fs.BoolVar(&asJSON, "json", false, "print one JSON object per suite")
		fs.BoolVar(&soak, "soak", false, "test every power cut and run no test with -short; takes long")
	}); err != nil {
		return 0, err
	}
	suites, err := choose(pattern, soak)
	if err != nil {
		return 0, err
	}
	if !list {
		return runAll(ctx, suites, asJSON, std)
	}
	for _, s := range suites {
		fmt.Fprintf(std.out, "%-28s %s\n", s.Name, s.Package)
	}
	return 0, nil
}

func choose(pattern string, soak bool) ([]suite.Suite, error) {
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, err
	}
	var chosen []suite.Suite
	for _, s := range suite.All() {
		if soak {
			s = s.Soak()
		}
		if re.MatchString(s.Name) {
			chosen = append(chosen, s)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no suite matches %q (lab suites -list prints them)", pattern)
	}
	return chosen, nil
}

func runAll(ctx context.Context, suites []suite.Suite, asJSON bool, std stdio) (code int, err error) {
	l, err := lab.Open(ctx, std.err)
	if err != nil {
		return 0, err
	}
	r, err := suite.NewRunner(l)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	for _, s := range suites {
		res := r.Run(ctx, s)
		if res.Outcome == suite.Fail && ctx.Err() == nil {
			// A second run tells a defect of the suite from one of the moment.
			fmt.Fprintf(std.err, "%s%s failed (%s): running it again\n", res.Output, s.Name, res.Reason)
			if again := r.Run(ctx, s); again.Outcome == suite.OK {
				again.Reason = "UNSTABLE: failed at first (" + res.Reason + "), and passed when run again"
				res = again
			}
		}
		if res.Outcome == suite.Fail {
			code = 1
		}
		if err := show(res, asJSON, std); err != nil {
			return 0, err
		}
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
	}
	return code, nil
}

func show(res suite.Result, asJSON bool, std stdio) error {
	if asJSON {
		return json.NewEncoder(std.out).Encode(res)
	}
	fmt.Fprint(std.err, res.Output)
	_, err := fmt.Fprintln(std.out, res)
	return err
}
