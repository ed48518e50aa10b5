package suite

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/culvert-io/culvert/lab"
	"github.com/culvert-io/culvert/lab/inside"
)

// Main is the TestMain of a package of the lab. With the flag -lab NAME the test
// binary boots the guest of that suite and runs itself there:
// go test ./lab/selftest -lab peer.
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
	args := []string{self}
	flag.Visit(func(f *flag.Flag) {
		if f.Name != "lab" {
			args = append(args, "-"+f.Name+"="+f.Value.String())
		}
	})
	res, err := l.Run(ctx, s.Guest, lab.Command{
		Args: append(args, flag.Args()...),
		Env:  s.Env, Dir: dir, Stdout: os.Stdout, Stderr: os.Stderr,
	})
	return res.ExitCode, err
}
