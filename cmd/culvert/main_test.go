package main

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/object/objecttest"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"culvert": main, "gdsio": main, "screened": screened, "at": at, "other": other, "third": third, "crowd": crowd, "answer": answer,
	})
}

// The scripts are the command line as a user types it, on the software machine.
func TestScripts(t *testing.T) { testscript.Run(t, scripts(t, "testdata")) }

// scripts are the parameters of the scripts in a directory.
func scripts(t *testing.T, dir string) testscript.Params {
	culvert, err := exec.LookPath("culvert")
	if err != nil {
		t.Fatal(err)
	}
	programs := filepath.Dir(filepath.Dir(culvert))
	return testscript.Params{
		Dir: dir,
		Setup: func(env *testscript.Env) error {
			env.Setenv("CULVERT_MACHINE", "soft")
			env.Setenv("CULVERT_SOFT", "memory=256M,poison=1")
			env.Setenv("TMPDIR", env.WorkDir)
			store := httptest.NewServer(objecttest.NewStore(nil)) // s3://bucket/
			env.Defer(store.Close)
			for name, value := range objecttest.Environment(store.URL) {
				env.Setenv(name, value)
			}
			// Other users take part in some, and have their statistics there, too.
			run := filepath.Join(env.WorkDir, ".run")
			env.Setenv("XDG_RUNTIME_DIR", run)
			return errors.Join(os.Mkdir(run, 0o700), os.Chmod(run, 0o777|os.ModeSticky),
				os.Chmod(filepath.Dir(env.WorkDir), 0o755), os.Chmod(programs, 0o755))
		},
		Condition: func(name string) (bool, error) {
			switch name {
			case "pty":
				f, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
				if err == nil {
					f.Close()
				}
				return err == nil, nil
			case "root":
				return os.Getuid() == 0, nil
			case "at":
				return exec.Command("at", "log", "sync", "--", "true").Run() == nil, nil
			case "mounts":
				return exec.Command("unshare", "-m", "true").Run() == nil, nil
			case "gpu":
				_, err := os.Stat("/dev/nvidiactl")
				return err == nil, nil
			case "xattr":
				return unix.Setxattr(programs, "user.culvert", nil, 0) == nil, nil
			}
			return false, fmt.Errorf("unknown condition %s", name)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"await": await, "xattr": xattr},
	}
}
