package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The page lists every variable of Culvert that docs/security.md lists, which in turn
// has all that the code names.
func TestEnvironmentIsComplete(t *testing.T) {
	text, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile("`(CULVERT_[A-Z0-9_]+)`").FindAllStringSubmatch(string(text), -1)
	if len(names) < 10 {
		t.Fatalf("docs/security.md has %d variables", len(names))
	}
	help := newEnvironment().Long
	for _, name := range names {
		if !regexp.MustCompile(`\b` + name[1] + `\b`).MatchString(help) {
			t.Errorf("culvert environment does not list %s", name[1])
		}
	}
	for line := range strings.Lines(help) {
		if len(line) > 81 {
			t.Errorf("too wide for a terminal: %s", line)
		}
	}
}
