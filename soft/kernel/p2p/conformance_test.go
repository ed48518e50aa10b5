package p2p

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestConformanceNamesTests holds docs/conformance.md to the tests that exist:
// every test named in a section is in one of the packages that it names.
func TestConformanceNamesTests(t *testing.T) {
	const root = "../../.."
	text, err := os.ReadFile(filepath.Join(root, "docs", "conformance.md"))
	if err != nil {
		t.Fatal(err)
	}
	packages := regexp.MustCompile("(?m)^Packages? (`.*`)")
	quoted := regexp.MustCompile("`([^`]+)`")
	named := 0
	for _, section := range strings.Split(string(text), "\n## ")[1:] {
		m := packages.FindStringSubmatch(section)
		if m == nil {
			continue
		}
		var source strings.Builder
		for _, p := range quoted.FindAllStringSubmatch(m[1], -1) {
			files, err := filepath.Glob(filepath.Join(root, p[1], "*_test.go"))
			if err != nil || len(files) == 0 {
				t.Errorf("package %s has no tests, %v", p[1], err)
			}
			for _, f := range files {
				b, err := os.ReadFile(f)
				if err != nil {
					t.Fatal(err)
				}
				source.Write(b)
			}
		}
		for _, q := range quoted.FindAllStringSubmatch(section, -1) {
			name := q[1]
			if !strings.HasPrefix(name, "Test") && !strings.HasPrefix(name, "Fuzz") {
				continue
			}
			named++
			if !strings.Contains(source.String(), "func "+name+"(") {
				title, _, _ := strings.Cut(section, "\n")
				t.Errorf("%s: there is no %s", title, name)
			}
		}
	}
	if named < 100 {
		t.Errorf("only %d tests are named", named)
	}
}
