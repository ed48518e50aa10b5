package clib_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// root is the directory of the module.
func root(t testing.TB) string {
	t.Helper()
	dir, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// libraries builds the C libraries and the command once, into lib/ and bin/.
func libraries(t testing.TB) string {
	t.Helper()
	for _, tool := range []string{"gcc", "make"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs %s to build the C libraries", tool)
		}
	}
	dir := root(t)
	if err := buildOnce(dir); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "lib")
}

var (
	built    sync.Once
	buildErr error
)

func buildOnce(dir string) error {
	built.Do(func() {
		cmd := exec.Command("make", "-s", "-f", "clib/clib.mk", "lib", "programs")
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			buildErr = errors.Join(err, errors.New(string(out)))
			return
		}
		cmd = exec.Command("go", "build", "-o", "bin/culvert", "./cmd/culvert")
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			buildErr = errors.Join(err, errors.New(string(out)))
		}
	})
	return buildErr
}

// compile builds a C program of testdata against the libraries.
func compile(t testing.TB, name string, flags ...string) string {
	t.Helper()
	lib := libraries(t)
	exe := filepath.Join(t.TempDir(), strings.TrimSuffix(name, ".c"))
	args := append([]string{"-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-Iinclude", "-o", exe, filepath.Join("testdata", name)}, flags...)
	args = append(args, "-L"+lib, "-L"+filepath.Join(lib, "soft"), "-lcufile", "-lcudart", "-lcuda", "-ldl")
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("gcc %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return exe
}

// A run is the result of a program.
type outcome struct {
	stdout, stderr string
	status         int
}

// run runs a program on the software machine with the libraries of lib.
func run(t testing.TB, lib string, argv ...string) outcome {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(softEnv(), "LD_LIBRARY_PATH="+lib+":"+filepath.Join(lib, "soft"))
	return finish(t, cmd)
}

// softEnv is the environment of a software machine, a small one by default.
func softEnv() []string {
	env := append(os.Environ(), "CULVERT_MACHINE=soft", "LD_PRELOAD=")
	if os.Getenv("CULVERT_SOFT") == "" {
		env = append(env, "CULVERT_SOFT=memory=256M,poison=1")
	}
	return env
}

func finish(t testing.TB, cmd *exec.Cmd) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		t.Fatal(err)
	}
	return outcome{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// golden compares with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	diff(t, name, got, string(want))
}
