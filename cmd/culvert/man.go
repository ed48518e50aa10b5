package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/culvert-io/culvert/internal/human"
)

// newMan writes the manual pages, which are made from the help texts. make install
// uses it.
func newMan(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:    "man DIRECTORY",
		Short:  "Write the manual pages of all commands",
		Long:   "Write the manual pages of all commands to a directory, one file each.\n\nEXIT STATUS\n  0  all pages were written\n  1  an error\n  2  invalid command line",
		Args:   args(cobra.ExactArgs(1)),
		Hidden: true,
		Example: `  culvert man /usr/local/share/man/man1
  man culvert-cp`,
		RunE: run(func(_ context.Context, a []string, _ io.Writer) error {
			for _, cmd := range manCommands(root) {
				path := filepath.Join(a[0], manName(cmd)+".1")
				if err := os.WriteFile(path, []byte(manPage(cmd)), 0o644); err != nil {
					return fmt.Errorf("man: %w", err)
				}
			}
			return nil
		}),
	}
}

// manCommands lists a command and those below it that help shows.
func manCommands(cmd *cobra.Command) []*cobra.Command {
	list := []*cobra.Command{cmd}
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() && c.Name() != "completion" {
			list = append(list, manCommands(c)...)
		}
	}
	return list
}

func manName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

func manPage(cmd *cobra.Command) string {
	var b strings.Builder
	name := manName(cmd)
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"Culvert %s\" \"Culvert\"\n", roff(strings.ToUpper(name)), roff(version()))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff(name), roff(cmd.Short))
	use := cmd.UseLine()
	if cmd.HasAvailableSubCommands() {
		use = cmd.CommandPath() + " COMMAND [flags]"
	}
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.nf\n%s\n.fi\n", roff(use))
	fmt.Fprintf(&b, ".SH DESCRIPTION\n")
	manText(&b, human.Reflow(strings.TrimSpace(cmd.Long), manWidth))
	manList(&b, cmd)
	if flags := manFlags(cmd); flags != "" {
		fmt.Fprintf(&b, ".SH OPTIONS\n%s", flags)
	}
	if cmd.Example != "" {
		fmt.Fprintf(&b, ".SH EXAMPLES\n.nf\n%s\n.fi\n", roff(cmd.Example))
	}
	var also []string
	for _, c := range append(cmd.Commands(), cmd.Parent()) {
		if c != nil && (c.IsAvailableCommand() || c == cmd.Parent()) && c.Name() != "completion" {
			also = append(also, fmt.Sprintf("\\fB%s\\fR(1)", roff(manName(c))))
		}
	}
	if len(also) > 0 {
		fmt.Fprintf(&b, ".SH SEE ALSO\n%s\n", strings.Join(also, ", "))
	}
	return b.String()
}

// manWidth is what a page has room for on 80 columns.
const manWidth = 72

// manList lists the commands below one that has some.
func manList(b *strings.Builder, cmd *cobra.Command) {
	if !cmd.HasAvailableSubCommands() {
		return
	}
	b.WriteString(".SH COMMANDS\n")
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			fmt.Fprintf(b, ".TP\n\\fB%s\\fR\n%s\n", roff(c.Name()), roff(c.Short))
		}
	}
}

// manText prints help text that has been laid out. A line of words in capitals is a section.
func manText(b *strings.Builder, text string) {
	b.WriteString(".nf\n")
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if title(line) {
			fmt.Fprintf(b, ".fi\n.SH %s\n.nf\n", roff(line))
			continue
		}
		b.WriteString(roff(line) + "\n")
	}
	b.WriteString(".fi\n")
}

func title(line string) bool {
	return line != "" && line[0] != ' ' && strings.Trim(line, "ABCDEFGHIJKLMNOPQRSTUVWXYZ ") == ""
}

func manFlags(cmd *cobra.Command) string {
	var b strings.Builder
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		names := "--" + f.Name
		if f.Shorthand != "" {
			names = "-" + f.Shorthand + ", " + names
		}
		if value != "" {
			names += " " + value
		}
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "0" && f.DefValue != "[]" {
			usage += " (default " + f.DefValue + ")"
		}
		fmt.Fprintf(&b, ".TP\n\\fB%s\\fR\n%s\n", roff(names), roff(usage))
	})
	return b.String()
}

// roff escapes a text, each line of which stays a line.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s)
	var b strings.Builder
	for _, r := range s {
		if r < 0x80 {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, `\[u%04X]`, r)
		}
	}
	lines := strings.Split(b.String(), "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
