package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/machine"
)

// The exit statuses of a program that could not be run are the shell's.
const (
	exitCannotRun = 126
	exitNotFound  = 127
)

func newRun() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run [--] PROGRAM [ARGUMENT...]",
		Short: "Run a program with Culvert's libcufile, and without a GPU with its software CUDA",
		Long: `run starts a program with Culvert's libcufile.so.0 in front of any other. On a
software machine (CULVERT_MACHINE) it puts the software libcuda.so.1 and
libcudart.so there as well, so that programs that use the CUDA driver API or the
shared runtime, and no kernels of their own, run without a GPU.

The libraries are preloaded, because the RPATH of Python wheels beats
LD_LIBRARY_PATH. They come from $CULVERT_LIB, or from where "make lib" and "make
install" put them: lib/ beside or above this program, ../lib/culvert, or lib/ in
the current directory. CULVERT_LOG=errors has them explain on standard error
every call that fails.

EXIT STATUS
  that of the program; 126 if it cannot be run, 127 if it is not found,
  1 if the libraries are missing, 2 if the command line is wrong`,
		Example: `  culvert run -- ./strrev test.txt
  CULVERT_MACHINE=soft culvert run -- python3 -m pytest tests/
  CULVERT_LOG=errors culvert run -- ./program`,
		Args: args(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, a []string) error { return runProgram(a, cmd.ErrOrStderr()) },
	}
	cmd.Flags().SetInterspersed(false) // flags after PROGRAM are the program's
	return cmd
}

// runProgram replaces this process: the program gets its signals and gives its
// exit status by itself.
func runProgram(argv []string, stderr io.Writer) error {
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return notRun(stderr, argv[0], err)
	}
	dir, err := findLibraries()
	if err != nil {
		return err
	}
	m, err := machine.Open()
	if err != nil {
		return err
	}
	if err := complete(dir, m.Soft); err != nil {
		return err
	}
	return notRun(stderr, path, unix.Exec(path, argv, preload(os.Environ(), dir, m.Soft)))
}

// complete looks for the libraries: the dynamic linker goes on without those that
// are not there, and the program would run with others.
func complete(dir string, soft bool) error {
	for _, lib := range libraries(dir, soft) {
		if _, err := os.Stat(lib); err != nil {
			return fmt.Errorf("%w (make lib makes all of them)", err)
		}
	}
	return nil
}

// libraries are those that are preloaded.
func libraries(dir string, soft bool) []string {
	libs := []string{filepath.Join(dir, "libcufile.so.0")}
	if soft {
		for _, name := range []string{"libcuda.so.1", "libcudart.so.13", "libcudart.so.12"} {
			libs = append(libs, filepath.Join(dir, "soft", name))
		}
	}
	return libs
}

// notRun says why, because the exit status alone ends the process quietly.
func notRun(stderr io.Writer, name string, err error) error {
	fmt.Fprintf(stderr, "culvert: run %s: %v\n", name, err)
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return exitStatus(exitNotFound)
	}
	return exitStatus(exitCannotRun)
}

// findLibraries is the directory with the C libraries.
func findLibraries() (string, error) {
	var dirs []string
	if dir := os.Getenv("CULVERT_LIB"); dir != "" {
		dirs = []string{dir}
	} else {
		if exe, err := os.Executable(); err == nil {
			here := filepath.Dir(exe)
			dirs = append(dirs, filepath.Join(here, "lib"), filepath.Join(here, "..", "lib"), filepath.Join(here, "..", "lib", "culvert"))
		}
		dirs = append(dirs, "lib")
	}
	for _, dir := range dirs {
		if _, err := os.Stat(filepath.Join(dir, "libculvert.so")); err != nil {
			continue
		}
		dir, err := filepath.Abs(dir)
		if strings.ContainsAny(dir, ": ") {
			err = fmt.Errorf("the dynamic linker cannot preload from %s: its list of libraries knows no colons and spaces in names", dir)
		}
		return dir, err
	}
	return "", fmt.Errorf("no libculvert.so in %s: run make lib, or set CULVERT_LIB to where it is", strings.Join(dirs, ", "))
}

// preload puts the libraries into an environment: preloaded, and in the search
// path for programs that look for another of their names.
func preload(env []string, dir string, soft bool) []string {
	dirs := []string{dir}
	if soft {
		dirs = append(dirs, filepath.Join(dir, "soft"))
	}
	env = prepend(env, "LD_PRELOAD", libraries(dir, soft))
	return prepend(env, "LD_LIBRARY_PATH", dirs)
}

// prepend puts values before those that a list in the environment has.
func prepend(env []string, name string, values []string) []string {
	list := strings.Join(values, ":")
	i := slices.IndexFunc(env, func(s string) bool { return strings.HasPrefix(s, name+"=") })
	if i < 0 {
		return append(env, name+"="+list)
	}
	if old := strings.TrimPrefix(env[i], name+"="); old != "" {
		list += ":" + old
	}
	env = slices.Clone(env)
	env[i] = name + "=" + list
	return env
}
