package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/internal/object"
	"github.com/culvert-io/culvert/internal/transfer"
)

// An interruption is a signal that stops a command. The command cleans up and
// then ends by that signal, not by an exit status: after an exit status a shell
// would continue its script.
type interruption struct {
	ctx    context.Context // cancelled by the signal
	cancel context.CancelFunc
	signal atomic.Int32 // 0 if there was none
	passed bool         // to a program, whose status counts
}

// intIgnored reports whether the parent process ignored SIGINT: asked before catch.
var intIgnored = signal.Ignored(unix.SIGINT)

// catch makes signals stop a command. The second one ends the process at once.
// SIGPIPE becomes an error of the write. SIGHUP is ignored if nohup ignores it.
func catch() *interruption {
	i := new(interruption)
	i.ctx, i.cancel = context.WithCancel(context.Background())
	stops := make(chan os.Signal, 1)
	signal.Notify(stops, unix.SIGINT, unix.SIGTERM)
	if !signal.Ignored(unix.SIGHUP) {
		signal.Notify(stops, unix.SIGHUP)
	}
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)
	go func() {
		i.signal.Store(int32((<-stops).(unix.Signal)))
		signal.Stop(stops)
		i.cancel()
	}()
	return i
}

// end re-raises the signal if it kept the command from succeeding, or ended its program.
// Otherwise it returns the exit status.
func (i *interruption) end(code int) int {
	s := unix.Signal(i.signal.Load())
	if s == 0 || code == 0 || i.passed && code != 128+int(s) {
		return code
	}
	if s != unix.SIGINT || !intIgnored {
		signal.Reset(s)
		_ = unix.Kill(os.Getpid(), s)
		time.Sleep(time.Second) // until the signal arrives
	}
	return 128 + int(s)
}

// explain returns the message of an error. For a command that was stopped, it is
// the command line to run next. A rerun of a directory copy resumes.
func explain(ctx context.Context, err error, args []string) string {
	again := commandLine(args)
	if part, ok := errors.AsType[*partlyCopied](err); ok {
		if !slices.ContainsFunc(args, func(a string) bool { return a == "-u" || a == "--update" || object.IsURL(a) }) {
			again += " --update" // what is complete is left out
		}
		if ctx.Err() != nil {
			return fmt.Sprintf("stopped with %d of %d sources complete; to resume: %s", part.sources, part.of, again)
		}
		return fmt.Sprintf("%v\nto resume: %s", err, again)
	}
	if stopped, ok := errors.AsType[*transfer.StoppedError](err); ok {
		if ctx.Err() != nil {
			return fmt.Sprintf("stopped with %d of %d files complete; to resume: %s", stopped.Files, stopped.Of, again)
		}
		return fmt.Sprintf("%v\ncomplete files are not copied again; to resume: %s", err, again)
	}
	if kept, ok := errors.AsType[*transfer.KeptError](err); ok {
		return fmt.Sprintf("stopped with %s of %s copied, which are kept in %s; to resume: %s", human.Size(kept.Kept), human.Size(kept.Of), human.Name(kept.Path), again)
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return "stopped; to start again: " + again
	}
	return err.Error()
}

// commandLine quotes a command for a shell, without what may be secret in its URLs.
func commandLine(args []string) string {
	words := []string{"culvert"}
	for _, a := range args {
		words = append(words, quoted(object.Redact(a)))
	}
	return strings.Join(words, " ")
}

// quoted quotes a word for a shell. What controls a terminal, or is no text, is written as
// bash, zsh and ksh read it.
func quoted(a string) string {
	unprintable := func(r rune) bool { return !unicode.IsPrint(r) }
	switch {
	case strings.ContainsFunc(a, unprintable) || !utf8.ValidString(a):
		var b strings.Builder
		for i := range len(a) {
			switch c := a[i]; {
			case c == '\'' || c == '\\':
				b.WriteString(`\` + string(c))
			case c < ' ' || c >= 0x7f:
				fmt.Fprintf(&b, `\%03o`, c)
			default:
				b.WriteByte(c)
			}
		}
		return "$'" + b.String() + "'"
	case a == "" || strings.Trim(a, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=,+@%") != "":
		return "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
	}
	return a
}
