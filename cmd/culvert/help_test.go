package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// The help of every command says what it ends with, and shows a command line.
func TestHelpIsComplete(t *testing.T) {
	var look func(*cobra.Command)
	look = func(cmd *cobra.Command) {
		for name, ok := range map[string]bool{
			"a part EXIT STATUS": strings.Contains(cmd.Long, "\nEXIT STATUS\n"),
			"an example":         strings.Contains(cmd.Example, cmd.CommandPath()),
		} {
			if !ok {
				t.Errorf("%s --help lacks %s", cmd.CommandPath(), name)
			}
		}
		for _, c := range cmd.Commands() {
			if c.Name() != "completion" { // which is cobra's
				look(c)
			}
		}
	}
	look(newRoot())
}
