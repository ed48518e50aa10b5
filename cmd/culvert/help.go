package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/culvert-io/culvert/internal/human"
)

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

// printHelp prints the help of a command, on a terminal folded to its width.
func printHelp(cmd *cobra.Command, _ []string) {
	width := human.Width(outFile(cmd))
	long := cmp.Or(strings.TrimSpace(cmd.Long), cmd.Short)
	text := human.Reflow(long, width) + "\n\n" + human.Fold(cmd.UsageString(), width)
	if human.ASCII() {
		text = human.Plain(text)
	}
	fmt.Fprint(cmd.OutOrStdout(), text)
}
