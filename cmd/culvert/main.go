// Command culvert moves data between storage and GPU memory and reports the route
// it took.
package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/env"
	"github.com/culvert-io/culvert/internal/human"
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
	out := &output{w: os.Stdout, gone: i.cancel}
	root := newRoot()
	root.SetOut(out)
	root.SetArgs(calledAs(os.Args))
	err := plainUsage(root.ExecuteContext(ctx))
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
		return int(code)
	}
	message := human.Red(os.Stderr, "culvert:") + " " + human.Text(explain(ctx, err, os.Args[1:]))
	fmt.Fprintln(measured(human.NewFoldWriter(os.Stderr, human.Width(os.Stderr))), message)
	return statusOf(err)
}

// An exitStatus ends the process without a message, which has been printed.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// A usageError is an invalid command line.
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
		Version: version(),
		Args:    noCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(*cobra.Command, []string) error {
			if v := env.Get("CULVERT_LOG"); v != "" && v != "errors" && v != "phases" {
				return &machine.SettingError{Name: "CULVERT_LOG", Err: fmt.Errorf("%q must be errors or phases", v)}
			}
			return nil
		},
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		text := err.Error()
		if number, ok := errors.AsType[*strconv.NumError](err); ok { // without the name of the function
			text = strings.ReplaceAll(text, number.Error(), "invalid number")
		}
		if m := noUnit.FindStringSubmatch(text); m != nil {
			return usageError{fmt.Errorf("%s %s lacks a unit (fix: %s %ss)", m[2], m[1], m[2], m[1])}
		}
		if m := shorthands.FindStringSubmatch(text); m != nil {
			if _, err := os.Lstat(m[1]); err == nil {
				return usageError{fmt.Errorf("%s (fix: for the file of this name, ./%s)", text, m[1])}
			}
		}
		if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok && habits[cmd.Name()][unknown.GetSpecifiedName()] != "" {
			return usageError{fmt.Errorf("%s: %s", text, habits[cmd.Name()][unknown.GetSpecifiedName()])}
		}
		hint := "see " + cmd.CommandPath() + " --help"
		if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
			hint = cmp.Or(nearFlag(cmd, unknown.GetSpecifiedName()), hint)
		}
		return usageError{fmt.Errorf("%s (%s)", text, hint)}
	})
	addGroup(root, "Start here:", newDemo(), newCheck())
	addGroup(root, "Files and models:", traceable(newCp()), newLs(), traceable(newLoad()), newSave(), newVerify())
	addGroup(root, "Your own programs:", newRun(), newStats(), newTop())
	addGroup(root, "Measuring:", traceable(newBench()), newTune())
	addGroup(root, "Drives and other hosts:", newNVMe(), newRDMA())
	addGroup(root, "NVIDIA's tools:", newGDSIO(), newGDSCheck(), newGDSStats(), newGDSIOVerify())
	root.AddCommand(newEnvironment(), newVersion(), newMan(root))
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

var (
	noUnit     = regexp.MustCompile(`^invalid argument "(\d+)" for "(?:-\w, )?(--[a-z-]+)" flag: time: missing unit`)
	shorthands = regexp.MustCompile(`^unknown shorthand flag: '.' in (-\S+)$`)
	exclusive  = regexp.MustCompile(`^if any flags in the group .* \[(.*)\] were all set$`)
)

// plainUsage says of flags that exclude each other what cobra says of their group.
func plainUsage(err error) error {
	if err == nil {
		return nil
	}
	if m := exclusive.FindStringSubmatch(err.Error()); m != nil {
		return usageError{fmt.Errorf("--%s exclude each other", strings.Join(strings.Fields(m[1]), " and --"))}
	}
	return err
}

// near is how many letters a mistyped word may have wrong: in a short one two make another word.
func near(word string) int {
	if len(word) <= 3 {
		return 1
	}
	return 2
}

// addGroup adds commands that the help lists together.
func addGroup(root *cobra.Command, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: title, Title: title})
	for _, cmd := range commands {
		cmd.GroupID = title
		root.AddCommand(cmd)
	}
}

// nearFlag asks whether a flag of the command was meant whose name is similar; "" if there
// is none.
func nearFlag(cmd *cobra.Command, name string) string {
	names := &cobra.Command{SuggestionsMinimumDistance: near(name)}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
		}
	})
	similar := names.SuggestionsFor(name)
	if len(name) < 3 || len(similar) == 0 {
		return ""
	}
	return "did you mean --" + strings.Join(similar, " or --") + "?"
}

// newHelp is cobra's help command, but rejects unknown commands.
func newHelp(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		ValidArgsFunction: func(_ *cobra.Command, a []string, _ string) (names []string, _ cobra.ShellCompDirective) {
			cmd, rest, err := root.Find(a)
			if err != nil || len(rest) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			for _, c := range cmd.Commands() {
				if c.IsAvailableCommand() {
					names = append(names, c.Name()+"\t"+c.Short)
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		Use:   "help [COMMAND]",
		Short: "Show help for a command",
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

// noCommand rejects a word that is not a command of cmd.
func noCommand(cmd *cobra.Command, a []string) error {
	if len(a) == 0 {
		return nil
	}
	hint := "see " + cmd.CommandPath() + " --help"
	cmd.SuggestionsMinimumDistance = near(a[0])
	if similar := cmd.SuggestionsFor(a[0]); len(similar) > 0 {
		hint = "did you mean " + strings.Join(similar, " or ") + "?"
	}
	return usageError{fmt.Errorf("unknown command %q (%s)", strings.TrimPrefix(cmd.CommandPath()+" "+a[0], "culvert "), hint)}
}

var argCount = regexp.MustCompile(`(\d+) arg\(s\)`)

// countText says of the number of arguments what cobra says.
func countText(err error) string {
	text := argCount.ReplaceAllStringFunc(err.Error(), func(s string) string {
		n, _ := strconv.Atoi(argCount.FindStringSubmatch(s)[1])
		return human.Count(n, "argument")
	})
	return strings.NewReplacer("requires", "needs", "accepts", "takes", "only received", "got", "received", "got").Replace(text)
}

// args makes a cobra validator return usage errors. It also rejects an empty
// argument, which usually is an unset variable of a script; run passes those on.
func args(v cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, a []string) error {
		if err := v(cmd, a); err != nil {
			return usageError{fmt.Errorf("%s: %s (usage: %s)", cmd.Name(), countText(err), cmd.UseLine())}
		}
		if i := slices.Index(a, ""); i == 0 || i > 0 && cmd.Name() != "run" {
			return usageError{fmt.Errorf("%s: argument %d is empty (usage: %s)", cmd.Name(), i+1, cmd.UseLine())}
		}
		return nil
	}
}
