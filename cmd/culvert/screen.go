package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/culvert-io/culvert/internal/human"
)

// A screen is what a command prints its result to. Only text for people is painted, and
// folded if it goes to a terminal.
type screen struct {
	w     io.Writer
	n     int64 // bytes written by the command
	width int   // of the terminal; 0 if lines may be as long as they are
	fold  *human.FoldWriter
}

// measured changes what a command prints before it is folded and painted. Tests of
// screens replace rates and times by it, whose widths would move everything else.
var measured = func(w io.Writer) io.Writer { return w }

// exact are flags whose output has a format of its own.
var exact = []string{"json", "csv", "lines", "openmetrics"}

func newScreen(cmd *cobra.Command, folds bool) *screen {
	s := &screen{w: cmd.OutOrStdout()}
	if slices.ContainsFunc(exact, func(name string) bool { set, _ := cmd.Flags().GetBool(name); return set }) {
		return s
	}
	f := outFile(cmd)
	if folds {
		s.width = human.Width(f)
	}
	s.fold = human.NewFoldWriter(s.w, s.width)
	s.w = s.fold
	if human.ASCII() {
		s.w = human.PlainWriter(s.w)
	}
	if human.Coloured(f) {
		s.w = human.PaintWriter(s.w)
	}
	s.w = measured(s.w)
	return s
}

func (s *screen) Write(p []byte) (int, error) {
	n, err := s.w.Write(p)
	s.n += int64(n)
	return n, err
}

// flush prints a line that has not ended.
func (s *screen) flush() error {
	if s.fold == nil {
		return nil
	}
	return s.fold.Flush()
}

// screenWidth is the number of columns of the terminal that a command prints to; 0 if
// it prints to none.
func screenWidth(out io.Writer) int {
	if s, ok := out.(*screen); ok {
		return s.width
	}
	return 0
}

// outFile is what a command prints to: cp prints to standard error if standard output
// has the data.
func outFile(cmd *cobra.Command) *os.File {
	if cmd.OutOrStdout() == cmd.ErrOrStderr() {
		return os.Stderr
	}
	return os.Stdout
}

// note prints a remark on standard error, as errors are printed.
func note(format string, args ...any) {
	message := human.Red(os.Stderr, "culvert:") + " " + human.Text(fmt.Sprintf(format, args...))
	fmt.Fprintln(measured(human.NewFoldWriter(os.Stderr, human.Width(os.Stderr))), message)
}

// A commandFunc is what a command does.
type commandFunc func(ctx context.Context, a []string, out io.Writer) error

// run adapts a command's function to cobra.
func run(f commandFunc) func(*cobra.Command, []string) error { return runOn(f, true) }

// runUnfolded is run for commands that print what other programs print.
func runUnfolded(f commandFunc) func(*cobra.Command, []string) error { return runOn(f, false) }

func runOn(f commandFunc, folds bool) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, a []string) error {
		out := newScreen(cmd, folds)
		err := f(cmd.Context(), a, out)
		if asJSON, _ := cmd.Flags().GetBool("json"); err != nil && asJSON && out.n == 0 { // what reads JSON gets the failure as JSON
			err = errors.Join(err, writeJSON(out, newFailure(err)))
		}
		return errors.Join(err, out.flush())
	}
}
