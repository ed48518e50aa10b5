package cufile_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// The statistics of tests go to a directory of their own.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "cufile")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Setenv("XDG_RUNTIME_DIR", dir)
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(dir)
		os.Exit(code)
	}))
}
