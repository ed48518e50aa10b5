package clib_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// TestScripts runs scripts with C programs.
func TestScripts(t *testing.T) {
	lib, bin := libraries(t), t.TempDir()
	// Written before the scripts run in parallel: a process that another script starts
	// would inherit the descriptor, and Linux runs no file that is open for writing.
	if err := writeCC(bin, root(t), lib); err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:       "testdata/scripts",
		Condition: condition,
		Setup:     func(env *testscript.Env) error { return setUp(env, root(t), lib, bin) },
	})
}

// writeCC writes the command cc NAME FLAGS..., which makes NAME of NAME.c.
func writeCC(bin, root, lib string) error {
	cc := fmt.Sprintf("#!/bin/sh\nname=$1; shift\nexec gcc -std=gnu11 -O1 -g -Wall -Wextra -Werror -pthread -I%s -o $name $name.c \"$@\" -L%s -L%s/soft -lcufile -lcudart -lcuda -ldl\n",
		filepath.Join(root, "clib/include"), lib, lib)
	return os.WriteFile(filepath.Join(bin, "cc"), []byte(cc), 0o755)
}

func setUp(env *testscript.Env, root, lib, bin string) error {
	env.Setenv("CULVERT_MACHINE", "soft")
	env.Setenv("CULVERT_SOFT", "memory=256M,poison=1")
	env.Setenv("TMPDIR", env.WorkDir)
	env.Setenv("XDG_RUNTIME_DIR", filepath.Join(env.WorkDir, ".tmp"))
	env.Setenv("LIB", lib)
	env.Setenv("INCLUDE", filepath.Join(root, "clib/include"))
	env.Setenv("LD_LIBRARY_PATH", lib+":"+filepath.Join(lib, "soft"))
	env.Setenv("PATH", bin+":"+env.Getenv("PATH"))
	// A second user gets in, too.
	return os.Chmod(filepath.Dir(env.WorkDir), 0o755)
}

func condition(name string) (bool, error) {
	switch name {
	case "setuid":
	case "asan": // some distributions have its runtime in a package of its own
		return exec.Command("gcc", "-fsanitize=address", "-shared", "-o", os.DevNull, "-xc", os.DevNull).Run() == nil, nil
	case "unshare": // mounts of its own
		return exec.Command("unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", os.TempDir()).Run() == nil, nil
	default:
		return false, fmt.Errorf("unknown condition %s", name)
	}
	// Only root gives programs away, and a mount or a container may ignore it.
	var on unix.Statfs_t
	if err := unix.Statfs(os.TempDir(), &on); err != nil {
		return false, err
	}
	privileges, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	return os.Getuid() == 0 && on.Flags&unix.ST_NOSUID == 0 && privileges == 0, err
}
