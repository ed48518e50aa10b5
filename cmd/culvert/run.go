package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/env"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/soft"
	"github.com/culvert-io/culvert/soft/fault"
)

// The exit statuses of a program that could not be run are the shell's.
const (
	exitCannotRun = 126
	exitNotFound  = 127
)

// Engines of "culvert run": who does the work of a cuFile call.
const (
	engineCulvert = "culvert"
	engineNVIDIA  = "nvidia"
)

type runOptions struct {
	engine  string
	observe bool
	library string
	report  string
	json    bool
	fault   string
	drive   bool // a fault is one of the drive
	without bool // a fault can be without effect
	trace   string
}

func newRun() *cobra.Command {
	o := runOptions{engine: engineCulvert}
	cmd := &cobra.Command{
		Use:   "run [flags] [--] PROGRAM [ARGUMENT...]",
		Short: "Run a program with Culvert's libcufile, and without a GPU with its software CUDA",
		Long: `Run PROGRAM with Culvert's libcufile.so.0 preloaded. On a software machine
(CULVERT_MACHINE) the software libcuda.so.1 and libcudart.so are preloaded, too:
programs that use the CUDA driver API or the shared runtime, and no kernels of
their own, then run without a GPU. Its libibverbs.so.1 is in the search path:
programs for verbs, such as perftest, find the software network adapter. With
libculvert-dev.so they find its device nodes: /dev/gdrdrv, /dev/gpumem,
/dev/libnvm0 and /dev/nvidia-fs0.
The processes of PROGRAM share the memory of the software GPUs (docs/run.md).

Preloading is needed because the RPATH of Python wheels precedes LD_LIBRARY_PATH.
The libraries are in $CULVERT_LIB, or where "make lib" and "make install" put
them: lib/ beside or above this program, ../lib/culvert, or lib/ in the current
directory. CULVERT_LOG=errors logs every failed call to standard error.

With --report, --json or --observe the program is watched: at its end a report
lists, for each file, calls, bytes, request sizes, percentiles, the routes taken
and why not better ones, and errors with their meaning. It counts what forked and
executed processes do, too, and survives _exit and SIGKILL. --observe leaves the
work to NVIDIA's libcufile.

--trace records every transfer of all processes, also of killed ones, and writes them
for ui.perfetto.dev (docs/trace.md). It needs Culvert's libcufile as the engine.

--fault breaks the software machine: calls fail, storage is slow, drives and GPUs
die. docs/testing.md lists the kinds. The report lists the faults that came about.

EXIT STATUS
  that of the program; 128 plus the signal that ended a program with --report or
  --trace; 126 if it cannot be run, 127 if it is not found; 1 if the libraries are
  missing, 2 for an invalid command line`,
		Example: `  culvert run -- ./strrev test.txt
  CULVERT_MACHINE=soft culvert run -- python3 -m pytest tests/
  CULVERT_LOG=errors culvert run -- ./program
  culvert run --report report.txt -- ./program
  culvert run --observe --json -- python3 train.py
  culvert run --trace trace.json -- ./program
  culvert run --fault 'errno=EIO,call=read,file=*.bin,nth=3' -- ./program`,
		Args: args(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, a []string) error { return o.run(a, cmd.ErrOrStderr()) },
	}
	cmd.Flags().StringVar(&o.engine, "engine", o.engine, "libcufile that does the work: culvert, nvidia")
	cmd.Flags().BoolVar(&o.observe, "observe", false, "watch NVIDIA's libcufile; the same as --engine nvidia")
	cmd.Flags().StringVar(&o.library, "libcufile", "", "NVIDIA's libcufile, if it is not in the usual places")
	cmd.Flags().StringVar(&o.report, "report", "", "file for the report, - for standard output (default standard error, if the program is watched)")
	cmd.Flags().BoolVar(&o.json, "json", false, "make the report JSON")
	cmd.Flags().StringVar(&o.fault, "fault", "", "faults of the software machine, or @FILE with them: errno=EIO,call=read,nth=3")
	cmd.Flags().StringVar(&o.trace, "trace", "", "write all transfers as Chrome trace events to this file, for ui.perfetto.dev")
	cmd.Flags().SetInterspersed(false) // flags after PROGRAM are the program's
	return cmd
}

// watches reports whether this process waits for the program, to report.
func (o *runOptions) watches() bool {
	return o.reports() || o.trace != ""
}

// reports reports whether there is a report at the end.
func (o *runOptions) reports() bool {
	return o.observe || o.json || o.report != "" || o.fault != "" || o.engine != engineCulvert
}

func (o *runOptions) check() error {
	if o.observe {
		o.engine = engineNVIDIA
	}
	if o.engine != engineCulvert && o.engine != engineNVIDIA {
		return usageError{fmt.Errorf("--engine %s: must be culvert or nvidia", o.engine)}
	}
	if o.fault != "" {
		if err := o.readFaults(); err != nil {
			return usageError{fmt.Errorf("--fault: %w", err)}
		}
	}
	if o.trace != "" && o.engine != engineCulvert {
		return usageError{errors.New("--trace needs --engine culvert: NVIDIA's library tells nothing about its transfers")}
	}
	if o.library != "" && o.engine != engineNVIDIA {
		return usageError{errors.New("--libcufile names the library of --observe")}
	}
	return nil
}

// readFaults replaces the name of a file by what is in it: the processes may have another
// working directory, and the file may be a pipe.
func (o *runOptions) readFaults() error {
	specs, err := fault.Parse(o.fault)
	if err != nil {
		return err
	}
	if len(specs) == 0 {
		return fmt.Errorf("no fault in %q", o.fault)
	}
	var texts []string
	for i := range specs {
		texts = append(texts, specs[i].Text)
	}
	o.fault = strings.Join(texts, "; ")
	any := func(kinds ...string) bool {
		return slices.ContainsFunc(specs, func(s fault.Spec) bool { return slices.Contains(kinds, s.Kind) })
	}
	o.drive = any(fault.Media, fault.Unplug, fault.DMA)
	o.without = any(fault.Short, fault.Truncate, fault.Revoke)
	return nil
}

// run replaces this process, so that the program receives its signals and returns its
// exit status, or starts the program and watches it.
func (o *runOptions) run(argv []string, stderr io.Writer) error {
	if err := o.check(); err != nil {
		return err
	}
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return runError(stderr, argv[0], err)
	}
	dir, err := findLibraries()
	if err != nil {
		return err
	}
	m, err := machine.Open()
	if err != nil {
		return err
	}
	if o.fault != "" && (!m.Soft || o.engine != engineCulvert) {
		return errors.New("--fault breaks the software machine only (fix: CULVERT_MACHINE=soft, and --engine culvert)")
	}
	libs := libraries(dir, m.Soft, o.watches() || insideReport())
	if err := checkLibraries(libs, dir, m.Soft); err != nil {
		return err
	}
	env, shared := share(preload(os.Environ(), libs, dir, m.Soft), m, stderr)
	// The program that replaces this process has GPUs of its own.
	if err := m.Close(); err != nil {
		return err
	}
	if o.watches() {
		return errors.Join(o.watch(path, argv, env, dir, m.Kind(), stderr), removeShared(shared))
	}
	if intIgnored {
		signal.Ignore(unix.SIGINT) // a signal with a handler would not be ignored after exec
	}
	return runError(stderr, path, unix.Exec(path, argv, env))
}

// insideReport reports whether a run around this one makes a report. Its library stays the first,
// with what it forwards to.
func insideReport() bool {
	_, err := os.Stat(env.Get("CULVERT_RUN_DIR"))
	return err == nil && env.Get("CULVERT_WATCHED") != ""
}

// share lets the processes of the program share the memory of the software GPUs, unless the
// environment says what they share. It returns the path of their file, which the first
// of them creates. Where no file can be, as in a container without /tmp, each process has
// GPUs of its own, as on a machine that is asked for that.
func share(env []string, m *machine.Machine, stderr io.Writer) ([]string, string) {
	const name = "CULVERT_SHARED="
	s, ok := soft.Of(m.GPU)
	if !ok || !s.Sharable() || slices.ContainsFunc(env, func(v string) bool { return strings.HasPrefix(v, name) }) {
		return env, ""
	}
	dir := os.TempDir()
	if err := writable(dir); err != nil {
		fmt.Fprintf(stderr, "culvert: run: processes do not share the memory of the software GPUs: %s: %v (fix: %s)\n", dir, err, setTMPDIR)
		return env, ""
	}
	path := soft.NewShared(dir)
	return append(env, name+path), path
}

// writable reports whether small files can be made in a directory.
func writable(dir string) error {
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return err
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err == nil && fs.Blocks > 0 && fs.Bavail*uint64(fs.Bsize) < 64<<10 {
		return unix.ENOSPC
	}
	return nil
}

// removeShared removes the file of a program that has ended. One that a process of it still
// uses stays.
func removeShared(path string) error {
	if path == "" {
		return nil
	}
	err := soft.RemoveShared(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EBUSY) {
		return nil
	}
	return err
}

// checkLibraries finds missing libraries. The dynamic linker would ignore them, and
// the program would run with others.
func checkLibraries(libs []string, dir string, soft bool) error {
	if soft {
		libs = append(libs[:len(libs):len(libs)], filepath.Join(dir, "soft", "libibverbs.so.1"))
	}
	for _, lib := range libs {
		if _, err := os.Stat(lib); err != nil {
			return fmt.Errorf("%w (fix: make lib)", err)
		}
	}
	return nil
}

// libraries lists what is preloaded. The libcufile that watches loads the one that does
// the work itself.
func libraries(dir string, soft, watched bool) []string {
	libs := []string{filepath.Join(dir, "libcufile.so.0")}
	if watched {
		libs[0] = filepath.Join(dir, "watch", "libcufile.so.0")
	}
	if soft {
		for _, name := range []string{"libcuda.so.1", "libcudart.so.13", "libcudart.so.12", "libculvert-dev.so"} {
			libs = append(libs, filepath.Join(dir, "soft", name))
		}
	}
	return libs
}

// runError prints why a program was not run and returns its exit status.
func runError(stderr io.Writer, name string, err error) error {
	fmt.Fprintf(stderr, "culvert: run %s: %v\n", name, err)
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return exitStatus(exitNotFound)
	}
	return exitStatus(exitCannotRun)
}

// findLibraries returns the directory of the C libraries.
func findLibraries() (string, error) {
	var dirs []string
	if dir := env.Get("CULVERT_LIB"); dir != "" {
		dirs = []string{dir}
	} else {
		if exe, err := os.Executable(); err == nil {
			here := filepath.Dir(exe)
			dirs = append(dirs, filepath.Join(here, "lib"), filepath.Join(here, "..", "lib"), filepath.Join(here, "..", "lib", "culvert"))
		}
		if !env.Secure() { // the caller chooses the current directory
			dirs = append(dirs, "lib")
		}
	}
	for _, dir := range dirs {
		if _, err := os.Stat(filepath.Join(dir, "libculvert.so")); err != nil {
			continue
		}
		dir, err := filepath.Abs(dir)
		if strings.ContainsAny(dir, ": ") {
			err = fmt.Errorf("cannot preload from %s: LD_PRELOAD allows no colons or spaces", dir)
		}
		return dir, err
	}
	return "", fmt.Errorf("libculvert.so not found in %s (fix: install the libraries, run make lib in a source tree, or set CULVERT_LIB to its directory)", strings.Join(dirs, ", "))
}

// preload adds the libraries to an environment. They are also in the search path,
// for programs that load them by another name: that of the libcufile first, which may be the
// one that watches.
func preload(env, libs []string, dir string, soft bool) []string {
	dirs := slices.Compact([]string{filepath.Dir(libs[0]), dir})
	if soft {
		dirs = append(dirs, filepath.Join(dir, "soft"))
	}
	env = prepend(env, "LD_PRELOAD", libs)
	env = prepend(env, "LD_LIBRARY_PATH", dirs)
	// A program of gcc's -fsanitize=address ends at once if its runtime is not the first
	// library. None of ours has the functions that it replaces.
	return prepend(env, "ASAN_OPTIONS", []string{"verify_asan_link_order=0"})
}

// prepend adds values to the front of a list in the environment.
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
