// Package cli is the command line of the lab. It reads its flags with package
// flag, whose single-dash words fit into go test's -exec string.
package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"golang.org/x/sys/unix"
)

// IO is where a command reads and writes.
type IO struct {
	Out, Err io.Writer
}

// Exit codes beside those of the command that a guest ran.
const (
	exitUsage   = 2
	exitFailure = 125 // the lab failed, not what ran in it
	exitTimeout = 124 // as timeout(1)
)

type command struct {
	name, synopsis string
	run            func(ctx context.Context, args []string, stdio IO) int
}

var commands = []command{
	{"exec", "run a program in a fresh guest; made for go test -exec", runExec},
	{"suites", "run the table of suites", runSuites},
	{"shell", "a prompt in a guest", runShell},
}

const usage = `The lab runs programs on a real Linux kernel under QEMU.

Usage: lab COMMAND [flags] [arguments]

`

// Commands is a line for each command.
func Commands() string {
	var b strings.Builder
	for _, c := range commands {
		fmt.Fprintf(&b, "  %-8s %s\n", c.name, c.synopsis)
	}
	return b.String()
}

// Main runs a command line without the program's name and returns the exit
// code.
func Main(args []string, stdio IO) int {
	ctx, stop := signal.NotifyContext(context.Background(), stops()...)
	defer stop()
	if len(args) == 0 || args[0] == "help" || args[0] == "-h" || args[0] == "--help" {
		fmt.Fprint(stdio.Out, usage+Commands()+"\nlab COMMAND -h tells about a command's flags.\n")
		return 0
	}
	names := make([]string, len(commands))
	for i, c := range commands {
		if c.name == args[0] {
			return c.run(ctx, args[1:], stdio)
		}
		names[i] = c.name
	}
	fmt.Fprintf(stdio.Err, "lab: no command %q: the commands are %s (see lab help)\n", args[0], strings.Join(names, ", "))
	return exitUsage
}

// stops are the signals that end a command. The end of the terminal does, unless
// nohup has it ignored.
func stops() []os.Signal {
	list := []os.Signal{unix.SIGINT, unix.SIGTERM}
	if !signal.Ignored(unix.SIGHUP) {
		list = append(list, unix.SIGHUP)
	}
	return list
}

// newFlags is a flag set whose help starts with text.
func newFlags(name, text string, stdio IO) *flag.FlagSet {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(stdio.Err)
	fs.Usage = func() {
		fmt.Fprint(stdio.Err, text)
		fs.PrintDefaults()
	}
	return fs
}

// parse returns the exit code to end with, or -1 to go on.
func parse(fs *flag.FlagSet, args []string) int {
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return exitUsage
	}
	return -1
}

// fail prints an error of the lab itself.
func fail(stdio IO, err error) int {
	fmt.Fprintln(stdio.Err, "lab:", err)
	if errors.Is(err, context.DeadlineExceeded) {
		return exitTimeout
	}
	return exitFailure
}
