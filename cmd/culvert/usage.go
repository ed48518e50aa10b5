package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/culvert-io/culvert/internal/human"
)

// A usageError is an invalid command line.
type usageError struct{ error }

// What cobra and pflag say of flags. They have types for few of their errors.
var (
	noUnit     = regexp.MustCompile(`^invalid argument "(\d+)" for "(?:-\w, )?(--[a-z-]+)" flag: time: missing unit`)
	shorthands = regexp.MustCompile(`^unknown shorthand flag: '.' in (-\S+)$`)
	exclusive  = regexp.MustCompile(`^if any flags in the group .* \[(.*)\] were all set$`)
)

// flagError rewords an error of pflag and adds what to type instead.
func flagError(cmd *cobra.Command, err error) error {
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
	hint := "see " + cmd.CommandPath() + " --help"
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		name := unknown.GetSpecifiedName()
		if instead := habits[cmd.Name()][name]; instead != "" {
			return usageError{fmt.Errorf("%s: %s", text, instead)}
		}
		hint = cmp.Or(nearFlag(cmd, name), hint)
	}
	return usageError{fmt.Errorf("%s (%s)", text, hint)}
}

// exclusiveError rewords cobra's error about flags that exclude each other. It returns
// other errors as they are.
func exclusiveError(err error) error {
	if err == nil {
		return nil
	}
	if m := exclusive.FindStringSubmatch(err.Error()); m != nil {
		return usageError{fmt.Errorf("--%s exclude each other", strings.Join(strings.Fields(m[1]), " and --"))}
	}
	return err
}

// maxTypos is how many letters of a mistyped word may be wrong: in a short one, two make
// another word.
func maxTypos(word string) int {
	if len(word) <= 3 {
		return 1
	}
	return 2
}

// nearFlag asks whether a flag of the command with a similar name was meant. It returns ""
// if there is none.
func nearFlag(cmd *cobra.Command, name string) string {
	names := &cobra.Command{SuggestionsMinimumDistance: maxTypos(name)}
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

// noCommand rejects a word that is not a command of cmd.
func noCommand(cmd *cobra.Command, a []string) error {
	if len(a) == 0 {
		return nil
	}
	hint := "see " + cmd.CommandPath() + " --help"
	cmd.SuggestionsMinimumDistance = maxTypos(a[0])
	if similar := cmd.SuggestionsFor(a[0]); len(similar) > 0 {
		hint = "did you mean " + strings.Join(similar, " or ") + "?"
	}
	return usageError{fmt.Errorf("unknown command %q (%s)", strings.TrimPrefix(cmd.CommandPath()+" "+a[0], "culvert "), hint)}
}

var argCount = regexp.MustCompile(`(\d+) arg\(s\)`)

// surplusArg is what cobra says of an argument where none is taken.
var surplusArg = regexp.MustCompile(`^unknown command (".*") for ".*"$`)

// countText rewords cobra's error about the number of arguments.
func countText(err error) string {
	if m := surplusArg.FindStringSubmatch(err.Error()); m != nil {
		return "takes no arguments, got " + m[1]
	}
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
