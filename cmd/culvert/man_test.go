package main

import (
	"os/exec"
	"strings"
	"testing"
)

// Every command has a page that man formats without a complaint, where man is there.
func TestManPages(t *testing.T) {
	commands := manCommands(newRoot())
	if len(commands) < 15 {
		t.Fatalf("%d commands", len(commands))
	}
	_, noGroff := exec.LookPath("groff")
	for _, cmd := range commands {
		page := manPage(cmd)
		for _, part := range []string{".TH ", ".SH NAME\n", ".SH SYNOPSIS\n", ".SH DESCRIPTION\n", `\- ` + roff(cmd.Short)} {
			if !strings.Contains(page, part) {
				t.Errorf("%s: no %q", cmd.CommandPath(), part)
			}
		}
		described := page[strings.Index(page, ".SH DESCRIPTION"):]
		for line := range strings.Lines(described[:max(strings.Index(described, ".SH OPTIONS"), 0)]) {
			if len(roffless.Replace(line)) > manWidth+1 && strings.Contains(strings.TrimSpace(line), " ") {
				t.Errorf("%s: a line is wider than 80 columns leave: %s", cmd.CommandPath(), line)
			}
		}
		if noGroff != nil {
			continue
		}
		groff := exec.Command("groff", "-man", "-Tutf8", "-ww")
		groff.Stdin = strings.NewReader(page)
		if out, err := groff.CombinedOutput(); err != nil || strings.Contains(string(out), "warning") {
			t.Errorf("%s: %v: %s", cmd.CommandPath(), err, out)
		}
	}
	if page := manPage(newRoot()); !strings.Contains(page, `\fBculvert\-cp\fR(1)`) || !strings.Contains(page, ".SH EXIT STATUS\n") {
		t.Errorf("the page of culvert:\n%s", page)
	}
}

// A section of a help text is a line of words in capitals, not whatever has no small letter.
func TestManSections(t *testing.T) {
	for line, want := range map[string]bool{"EXIT STATUS": true, "KEYS": true, "LC_ALL=C.": false, "  INDENTED": false, "": false, "Text": false} {
		if got := title(line); got != want {
			t.Errorf("%q: %t", line, got)
		}
	}
}

var roffless = strings.NewReplacer(`\-`, "-", `\e`, `\`, `\&`, "")

func TestRoff(t *testing.T) {
	if got, want := roff(".a\n'b…\n\\n --x"), "\\&.a\n\\&'b\\[u2026]\n\\en \\-\\-x"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
