// Command culvert moves data between storage and GPU memory and reports the route
// it took.
package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/env"
	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/internal/object"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/route"
)

// The exit statuses of every command.
const (
	exitFailed = 1 // an error; the message names the file and the cause
	exitUsage  = 2 // invalid command line or environment variable
	exitRoute  = 3 // a required route is not available
	exitPipe   = 128 + int(unix.SIGPIPE)
)

// setTMPDIR is the fix where temporary files have no place.
const setTMPDIR = "set TMPDIR to a writable directory"

func main() {
	raiseMaxProcs()
	i := catch()
	os.Exit(i.end(execute(i)))
}

// raiseMaxProcs sets GOMAXPROCS above the core count, because goroutines that move
// data are mostly in system calls and CUDA. With as many callers as cores, the
// scheduler takes the P of a caller in such a call and starts a thread, which finds
// no work: one call in a hundred took 1 ms.
func raiseMaxProcs() {
	if os.Getenv("GOMAXPROCS") == "" {
		n := runtime.GOMAXPROCS(0)
		runtime.GOMAXPROCS(n + max(n/4, 1))
	}
}

func execute(i *interruption) int {
	ctx := i.ctx
	object.StopWith(ctx)
	out := &output{w: os.Stdout, gone: i.cancel}
	root := newRoot()
	root.SetOut(out)
	root.SetArgs(calledAs(os.Args))
	err := exclusiveError(root.ExecuteContext(ctx))
	if errors.Is(out.err, unix.EPIPE) {
		return exitPipe // as a program that SIGPIPE ended
	}
	if err == nil && out.err != nil {
		err = fmt.Errorf("print the result: %w", out.err)
	}
	if err == nil {
		return 0
	}
	if code, ok := errors.AsType[exitStatus](err); ok {
		i.passed = true
		return int(code)
	}
	message := human.Red(os.Stderr, "culvert:") + " " + human.Text(explain(ctx, err, os.Args[1:]))
	fmt.Fprintln(measured(human.NewFoldWriter(os.Stderr, human.Width(os.Stderr))), message)
	return statusOf(err)
}

// An exitStatus is that of a program. It ends the process without a message, which has been
// printed.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

func statusOf(err error) int {
	if _, ok := errors.AsType[*route.RequireError](err); ok {
		return exitRoute
	}
	if _, ok := errors.AsType[usageError](err); ok {
		return exitUsage
	}
	if _, ok := errors.AsType[*machine.SettingError](err); ok {
		return exitUsage
	}
	return exitFailed
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "culvert",
		Short: "The GPUDirect data path: storage to GPU memory and back, with a receipt",
		Long: `Move data between storage and GPU memory over the most direct route available;
report it and why better ones were not used.

Without an NVIDIA GPU the same commands run on a software machine
(CULVERT_MACHINE=auto, real or soft).

A terminal sees colours unless NO_COLOR is set, and plain ASCII under LC_ALL=C.

EXIT STATUS
  0  success
  1  an error
  2  invalid command line or environment variable
  3  a required route is not available
  run returns the program's exit status. A command that a signal stops cleans up
  and ends by that signal.`,
		Example: `  culvert demo                              # the data path in one minute
  culvert check                             # what this machine can do
  culvert cp model.bin copy.bin --via gpu:0 # through GPU memory, with a receipt`,
		Version:           version(),
		Args:              noCommand,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: checkLog,
		SilenceErrors:     true,
		SilenceUsage:      true,
	}
	root.SetFlagErrorFunc(flagError)
	addCommands(root)
	addCompletions(root)
	root.SetHelpCommand(newHelp(root))
	root.SetHelpFunc(printHelp)
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "completion" {
			cmd.Args, cmd.RunE = noCommand, root.RunE
		}
	}
	return root
}

// checkLog rejects a value of CULVERT_LOG that has no meaning.
func checkLog(*cobra.Command, []string) error {
	if v := env.Get("CULVERT_LOG"); v != "" && v != "errors" && v != "phases" {
		return &machine.SettingError{Name: "CULVERT_LOG", Err: fmt.Errorf("%q must be errors or phases", v)}
	}
	return nil
}

func addCommands(root *cobra.Command) {
	addGroup(root, "Start here:", newDemo(), newCheck())
	addGroup(root, "Files and models:", traceable(newCp()), newLs(), traceable(newLoad()), newSave(), newVerify())
	addGroup(root, "Your own programs:", newRun(), newStats(), newTop())
	addGroup(root, "Measuring:", traceable(newBench()), newTune())
	addGroup(root, "Drives and other hosts:", newNVMe(), newRDMA())
	addGroup(root, "NVIDIA's tools:", newGDSIO(), newGDSCheck(), newGDSStats(), newGDSIOVerify())
	root.AddCommand(newEnvironment(), newVersion(), newMan(root))
}

// addGroup adds commands that the help lists together.
func addGroup(root *cobra.Command, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: title, Title: title})
	for _, cmd := range commands {
		cmd.GroupID = title
		root.AddCommand(cmd)
	}
}
