package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/culvert-io/culvert/internal/quality/defects"
)

// TestKnownDefects runs scripts that fail today, each at the line that it names.
func TestKnownDefects(t *testing.T) {
	culvert, err := exec.LookPath("culvert")
	if err != nil {
		t.Fatal(err)
	}
	programs := filepath.Dir(filepath.Dir(culvert))
	defects.Run(t, testscript.Params{
		Dir: "testdata/defects",
		Setup: func(env *testscript.Env) error {
			env.Setenv("CULVERT_MACHINE", "soft")
			env.Setenv("CULVERT_SOFT", "memory=256M")
			env.Setenv("TMPDIR", env.WorkDir)
			// A second user gets in, too.
			return errors.Join(os.Chmod(filepath.Dir(env.WorkDir), 0o755), os.Chmod(programs, 0o755))
		},
		Condition: func(name string) (bool, error) {
			switch name {
			case "root":
				return os.Getuid() == 0, nil
			case "gpu":
				_, err := os.Stat("/dev/nvidiactl")
				return err == nil, nil
			}
			return false, fmt.Errorf("unknown condition %s", name)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"await": await},
	})
}

// asUser becomes a program that runs as another user.
func asUser(id int) {
	path, err := exec.LookPath(os.Args[1])
	if err == nil {
		err = errors.Join(syscall.Setgroups(nil), syscall.Setgid(id), syscall.Setuid(id))
	}
	if err == nil {
		err = syscall.Exec(path, os.Args[1:], os.Environ())
	}
	fmt.Fprintln(os.Stderr, os.Args[0], err)
	os.Exit(125)
}

func other() { asUser(65534) }
func third() { asUser(65533) }

// await waits until files exist.
func await(ts *testscript.TestScript, _ bool, names []string) {
	for _, name := range names {
		for end := time.Now().Add(time.Minute); ; time.Sleep(2 * time.Millisecond) {
			if _, err := os.Lstat(ts.MkAbs(name)); err == nil {
				break
			}
			if time.Now().After(end) {
				ts.Fatalf("%s does not appear", name)
			}
		}
	}
}
