package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
)

// A rerun runs the tests of one package again and returns their events. A nil rerun
// means that nothing runs again.
type rerun func(pkg string) (io.Reader, error)

// mostAgain is the number of failed packages that run again. If more fail, the cause
// is not chance.
const mostAgain = 3

// runAlone returns a rerun by a command that takes the package as its last argument.
func runAlone(command []string) rerun {
	if len(command) == 0 {
		return nil
	}
	return func(pkg string) (io.Reader, error) {
		cmd := exec.Command(command[0], append(slices.Clone(command[1:]), "./"+pkg)...)
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if _, failed := errors.AsType[*exec.ExitError](err); failed {
			err = nil // the events tell
		}
		return bytes.NewReader(out), err
	}
}

// rerunFailed replaces the results of failed packages by those of a second run.
func rerunFailed(suites map[string]*suite, again rerun, out io.Writer) error {
	var failed []string
	for _, pkg := range slices.Sorted(maps.Keys(suites)) {
		if slices.Contains(suites[pkg].problems, "failed") {
			failed = append(failed, pkg)
		}
	}
	if again == nil || len(failed) > mostAgain {
		return nil
	}
	for _, pkg := range failed {
		events, err := again(pkg)
		if err != nil {
			return fmt.Errorf("run %s again: %w", pkg, err)
		}
		second, err := collect(events, out)
		if err != nil {
			return err
		}
		if s := second[pkg]; s != nil && len(s.problems) == 0 {
			s.lines = slices.Concat(s.lines, []string{"UNSTABLE " + pkg + " failed at first, and passed alone:"}, suites[pkg].lines)
			suites[pkg] = s
		}
	}
	return nil
}
