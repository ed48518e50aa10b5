package cufile_test

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/culvert-io/culvert/lab/fusetest"
	"github.com/culvert-io/culvert/machine"
)

// Most tests run on hardware, too, from a binary of go test -c.
var machineKind = flag.String("cufile.machine", machine.Soft, "the `machine`: soft or real")

// randomly makes property tests choose other inputs in each run.
var randomly = flag.Bool("cufile.random", false, "use random seeds in property tests")

// The statistics and measurements of tests go to a directory of their own.
func TestMain(m *testing.M) {
	fusetest.Main()
	flag.Parse()
	if !*randomly {
		flag.Set("rapid.seed", "1")
	}
	if os.Getenv(exitEnv) != "" { // the child of TestExitWithoutCloseLeavesNothing
		os.Exit(m.Run())
	}
	dir, err := os.MkdirTemp("", "cufile")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Setenv("XDG_RUNTIME_DIR", dir)
	os.Setenv("XDG_CACHE_HOME", dir)
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(dir)
		os.Exit(code)
	}))
}
