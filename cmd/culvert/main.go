// Command culvert moves bytes between storage and GPU memory, and says which way
// they went.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/route"
)

// The exit statuses of every command.
const (
	exitFailed = 1 // an error; the message names the file and the cause
	exitUsage  = 2 // the command line is wrong, or a variable of the environment
	exitRoute  = 3 // a required route is not available here
	exitPipe   = 128 + int(unix.SIGPIPE)
)

func main() {
	makeRoom()
	i := catch()
	os.Exit(i.end(run(i)))
}

// makeRoom lets more goroutines run than there are cores, since those that move
// bytes are in system calls and in CUDA most of the time. With one for each core
// the scheduler takes the place of one that is in a call, starts a thread to look
// for other work and finds none: sixteen callers on sixteen cores then wait for
// each other, a millisecond in one call of a hundred.
func makeRoom() {
	if os.Getenv("GOMAXPROCS") == "" {
		n := runtime.GOMAXPROCS(0)
		runtime.GOMAXPROCS(n + max(n/4, 1))
	}
}

func run(i *interruption) int {
	ctx := i.ctx
	out := &output{w: os.Stdout, gone: i.cancel}
	root := newRoot()
	root.SetOut(out)
	err := root.ExecuteContext(ctx)
	if errors.Is(out.err, unix.EPIPE) {
		return exitPipe // whoever read it has seen enough
	}
	if err == nil && out.err != nil {
		err = fmt.Errorf("the result could not be printed: %w", out.err)
	}
	if err == nil {
		return 0
	}
	if code, ok := errors.AsType[exitStatus](err); ok {
		return int(code)
	}
	fmt.Fprintln(os.Stderr, "culvert:", explain(ctx, err, os.Args[1:]))
	return statusOf(err)
}

// An output remembers the first error, so that a full disk behind it is not taken
// for success, and stops the command when nobody reads what it prints.
type output struct {
	w    io.Writer
	err  error
	gone func()
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.w.Write(p)
	if o.err == nil {
		o.err = err
	}
	if errors.Is(err, unix.EPIPE) {
		o.gone()
	}
	return n, err
}

// An exitStatus ends the process quietly: of a program that culvert ran, or
// after everything has been said.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// A usageError is the command line's fault.
type usageError struct{ error }

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
		Long: `culvert moves bytes between storage and GPU memory by the shortest route that
this machine really has, and says which one and why not a better one.

Without an NVIDIA GPU the same commands run on a software machine
(CULVERT_MACHINE=auto, real or soft).

EXIT STATUS
  0  it is done
  1  an error
  2  the command line is wrong, or a variable of the environment
  3  a required route is not available here
  run ends with that of the program that it ran; a command that a signal
  stops puts things in order and ends by that signal`,
		Example: `  culvert demo                              # the whole path in one minute
  culvert check                             # what this machine can do
  culvert cp model.bin copy.bin --via gpu:0 # through GPU memory, with a receipt`,
		Version:       version(),
		Args:          noCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%s (see %s --help)", plainly(err), cmd.CommandPath())}
	})
	root.AddCommand(newDemo(), newCheck(), newCp(), newRun(), newBench(), newLs(), newLoad(), newSave(), newVerify(), newStats(), newNVMe(), newVersion())
	root.SetHelpCommand(newHelp(root))
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "completion" {
			cmd.Args, cmd.RunE = noCommand, root.RunE
		}
	}
	return root
}

// newHelp is cobra's help command, but for words that name no command.
func newHelp(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Tell about a command",
		RunE: func(_ *cobra.Command, a []string) error {
			cmd, rest, err := root.Find(a)
			if err == nil {
				err = noCommand(cmd, rest)
			}
			if err != nil {
				return err
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		},
	}
}

// noCommand refuses a word that names no command of cmd.
func noCommand(cmd *cobra.Command, a []string) error {
	if len(a) == 0 {
		return nil
	}
	hint := "see " + cmd.CommandPath() + " --help"
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(a[0]); len(near) > 0 {
		hint = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return usageError{fmt.Errorf("no command %q (%s)", strings.TrimPrefix(cmd.CommandPath()+" "+a[0], "culvert "), hint)}
}

// plainly is an error of a flag without the name of the function that found it.
func plainly(err error) string {
	text := err.Error()
	if number, ok := errors.AsType[*strconv.NumError](err); ok {
		text = strings.ReplaceAll(text, number.Error(), "no number that is possible there")
	}
	return text
}

// args wraps a cobra validator so that a wrong number of arguments exits with
// the status of wrong usage. So does an empty one, which mostly is a variable of a
// script that was not set; a program that culvert runs may want some.
func args(v cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, a []string) error {
		if err := v(cmd, a); err != nil {
			text := strings.ReplaceAll(err.Error(), "arg(s)", "arguments")
			return usageError{fmt.Errorf("%s: %s (usage: %s)", cmd.Name(), text, cmd.UseLine())}
		}
		if i := slices.Index(a, ""); i == 0 || i > 0 && cmd.Name() != "run" {
			return usageError{fmt.Errorf("%s: argument %d is empty (usage: %s)", cmd.Name(), i+1, cmd.UseLine())}
		}
		return nil
	}
}
