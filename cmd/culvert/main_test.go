package main

import (
	"fmt"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"culvert": main, "at": at, "other": other, "third": third})
}

// The scripts are the command line as a user types it, on the software machine.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			env.Setenv("CULVERT_MACHINE", "soft")
			env.Setenv("CULVERT_SOFT", "memory=256M")
			env.Setenv("TMPDIR", env.WorkDir)
			return nil
		},
		Condition: func(name string) (bool, error) {
			if name != "pty" {
				return false, fmt.Errorf("unknown condition %s", name)
			}
			f, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
			if err == nil {
				f.Close()
			}
			return err == nil, nil
		},
	})
}
