package culvert_test

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// otherModule has tests that make store-test runs: go test ./... does not see them.
const otherModule = "culvert-store"

// TestSuitesAreListed compares suites.txt with the packages that have tests.
func TestSuitesAreListed(t *testing.T) {
	text, err := os.ReadFile("suites.txt")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 0 && !strings.HasPrefix(line, "#") {
			listed[fields[0]] = true
		}
	}
	var tested []string
	for _, s := range sources(t) {
		if s.test() && s.dir() != otherModule && !slices.Contains(tested, s.dir()) {
			tested = append(tested, s.dir())
		}
	}
	for _, dir := range tested {
		if !listed[dir] {
			t.Errorf("suites.txt does not list %s, which has tests", dir)
		}
		delete(listed, dir)
	}
	for dir := range listed {
		t.Errorf("suites.txt lists %s, which has no tests", dir)
	}
}
