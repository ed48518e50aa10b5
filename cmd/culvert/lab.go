package main

import (
	"github.com/spf13/cobra"

	"github.com/culvert-io/culvert/lab/cli"
)

func newLab() *cobra.Command {
	return &cobra.Command{
		Use:   "lab COMMAND [ARGUMENT...]",
		Short: "Run programs, tests or a prompt on a real Linux kernel under QEMU",
		Long: `lab boots a real Linux kernel under QEMU in seconds, without privileges: for a
prompt with culvert in the guest, for one program, or for the project's suites.
It needs the source tree, Go and QEMU; "make lab" installs what is missing.
docs/lab.md tells the rest.

COMMANDS
` + cli.Commands() + `
EXIT STATUS
  that of what ran in the guest, for exec and shell
  0    every suite passed
  1    a suite failed
  2    the command line is wrong
  124  the time was up
  125  the lab failed, not what ran in it`,
		Example: `  culvert lab shell
  culvert lab exec -h
  culvert lab suites -list
  culvert lab suites -run datapath`,
		DisableFlagParsing: true, // they are the lab's
		RunE: func(cmd *cobra.Command, a []string) error {
			if len(a) == 0 || a[0] == "-h" || a[0] == "--help" {
				return cmd.Help()
			}
			if code := cli.Main(a, cli.IO{Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr()}); code != 0 {
				return exitStatus(code)
			}
			return nil
		},
	}
}
