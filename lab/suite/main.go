package suite

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-io/culvert/lab"
	"github.com/culvert-io/culvert/lab/inside"
)

// Main is the TestMain of a package that lives in the lab. It adds a flag:
// with -lab NAME the test binary boots the guest of that suite and runs itself
// there, so that plain "go test ./lab/selftest -lab peer" does it.
func Main(m *testing.M) {
	name := flag.String("lab", "", "run on the guest of this suite of the lab")
	flag.Parse()
	if *name == "" || inside.Boot() > 0 {
		os.Exit(m.Run())
	}
	code, err := runSelf(*name)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%v\nFAIL\n", err)
		code = 1
	}
	os.Exit(code)
}

func runSelf(name string) (int, error) {
	s, err := Named(name)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout())
	defer cancel()
	l, err := lab.Open(ctx, os.Stderr)
	if err != nil {
		return 0, err
	}
	dir, err := os.Getwd()
	if err != nil {
		return 0, err
	}
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	res, err := l.Run(ctx, s.Guest, lab.Command{
		Args: append([]string{self}, withoutFlag(os.Args[1:])...),
		Env:  s.Env, Dir: dir, Stdout: os.Stdout, Stderr: os.Stderr,
	})
	return res.ExitCode, err
}

// withoutFlag drops -lab, which has done its work.
func withoutFlag(args []string) []string {
	isFlag := func(a string) bool {
		name, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(a, "-"), "-"), "=")
		return strings.HasPrefix(a, "-") && name == "lab"
	}
	i := slices.IndexFunc(args, isFlag)
	if i < 0 {
		return args
	}
	n := 1
	if !strings.Contains(args[i], "=") {
		n = 2 // the value is the next argument
	}
	return slices.Delete(slices.Clone(args), i, min(i+n, len(args)))
}
