// Command lab runs programs and the project's test suites on a real Linux
// kernel under QEMU.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// Exit codes beside those of the command that a guest ran.
const (
	exitUsage   = 2
	exitTimeout = 124 // as timeout(1)
	exitFailure = 125 // the lab itself failed
)

const usage = `Usage: lab COMMAND [flags] [arguments]

Run programs on a real Linux kernel under QEMU, which boots in seconds and needs
no privileges.

Commands:
  exec    run a program in a fresh guest; for go test -exec
  suites  run the test suites
  shell   open a prompt in a guest

lab COMMAND -h lists the flags of a command.
`

// stdio is where a command writes.
type stdio struct{ out, err io.Writer }

// The flags of package flag have one dash, which fits into go test's -exec.
var commands = map[string]func(context.Context, []string, stdio) (int, error){
	"exec":   runExec,
	"suites": runSuites,
	"shell":  runShell,
}

func main() { os.Exit(run(os.Args[1:], stdio{os.Stdout, os.Stderr})) }

// run runs a command line and returns its exit code.
func run(args []string, std stdio) int {
	if len(args) == 0 || args[0] == "help" || args[0] == "-h" || args[0] == "--help" {
		fmt.Fprint(std.out, usage)
		return 0
	}
	command, ok := commands[args[0]]
	if !ok {
		fmt.Fprintf(std.err, "lab: unknown command %q (commands: exec, suites, shell)\n", args[0])
		return exitUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), stopSignals()...)
	defer stop()
	code, err := command(ctx, args[1:], std)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, errUsage):
		return exitUsage // package flag has printed it
	case err == nil:
		return code
	}
	fmt.Fprintln(std.err, "lab:", err)
	if errors.Is(err, context.DeadlineExceeded) {
		return exitTimeout
	}
	return exitFailure
}

// stopSignals end a command. SIGHUP does not if nohup ignores it.
func stopSignals() []os.Signal {
	list := []os.Signal{unix.SIGINT, unix.SIGTERM}
	if !signal.Ignored(unix.SIGHUP) {
		list = append(list, unix.SIGHUP)
	}
	return list
}

// errUsage means that the flags are invalid and the usage has been printed.
var errUsage = errors.New("invalid usage")

// parse adds flags by register and parses them. The usage starts with text.
func parse(name, text string, args []string, std stdio, register func(*flag.FlagSet)) (*flag.FlagSet, error) {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(std.err)
	fs.Usage = func() {
		fmt.Fprint(std.err, text)
		fs.PrintDefaults()
	}
	register(fs)
	err := fs.Parse(args)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		err = errUsage
	}
	return fs, err
}
