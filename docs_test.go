package culvert_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/culvert-io/culvert/internal/abi/nvrm"
)

// documents returns the names of all Markdown files.
func documents(t *testing.T) []string {
	t.Helper()
	var list []string
	for _, pattern := range []string{"*.md", "docs/*.md"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, names...)
	}
	if len(list) < 5 {
		t.Fatalf("found %q only", list)
	}
	return list
}

func readText(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestLinks checks that links between documents lead to files and headings.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^()\s]+)\)`)
	for _, name := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(readText(t, name), -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			file := name
			if target != "" {
				file = path.Join(path.Dir(name), target)
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s: link to %s: %v", name, m[1], err)
				continue
			}
			if anchor != "" && !headings(readText(t, file))[anchor] {
				t.Errorf("%s: link to %s: no such heading", name, m[1])
			}
		}
	}
}

// headings returns the anchors of a document, as GitHub makes them.
func headings(text string) map[string]bool {
	drop := regexp.MustCompile("[^a-z0-9 _-]")
	anchors := map[string]bool{}
	for line := range strings.Lines(text) {
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			title = drop.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), "")
			anchors[strings.ReplaceAll(title, " ", "-")] = true
		}
	}
	return anchors
}

// TestGlossaryPackages checks that the packages of the glossary exist.
func TestGlossaryPackages(t *testing.T) {
	quoted := regexp.MustCompile("`([^`]+)`")
	words := 0
	for line := range strings.Lines(readText(t, "docs/glossary.md")) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 5 {
			continue
		}
		words++
		for _, m := range quoted.FindAllStringSubmatch(cells[3], -1) {
			if _, err := os.Stat(strings.TrimSuffix(m[1], "/...")); err != nil {
				t.Errorf("%s: %v", strings.TrimSpace(cells[1]), err)
			}
		}
	}
	if words < 40 {
		t.Errorf("found %d words in the glossary", words)
	}
}

// TestNotices checks that every required module is in the notices and in
// docs/dependencies.md, with its version.
func TestNotices(t *testing.T) {
	notices, reasons := readText(t, "THIRD_PARTY_NOTICES.md"), readText(t, "docs/dependencies.md")
	require := regexp.MustCompile(`(?m)^\t(\S+) (v\S+)( // indirect)?$`)
	for _, m := range require.FindAllStringSubmatch(readText(t, "go.mod"), -1) {
		row := regexp.MustCompile(regexp.QuoteMeta(m[1]) + "`?( \\|)? " + regexp.QuoteMeta(m[2]) + `\b`)
		if !row.MatchString(notices) {
			t.Errorf("THIRD_PARTY_NOTICES.md: no %s %s", m[1], m[2])
		}
		if m[3] == "" && !row.MatchString(reasons) {
			t.Errorf("docs/dependencies.md: no %s %s", m[1], m[2])
		}
	}
}

// TestFormatVersions checks the table of persistent formats: each constant has that
// value, and its golden files and test exist.
func TestFormatVersions(t *testing.T) {
	row := regexp.MustCompile("\\| (\\d+) \\| `(\\w+)` in `([^`]+)` \\| `([^`]+)`, `(Test\\w+)` \\|")
	rows := row.FindAllStringSubmatch(readText(t, "docs/compatibility.md"), -1)
	if len(rows) < 5 {
		t.Fatalf("found %d formats", len(rows))
	}
	for _, m := range rows {
		version, constant, file, dir, test := m[1], m[2], m[3], m[4], m[5]
		if !regexp.MustCompile(`\b` + constant + `\s*=\s*` + version + `\b`).MatchString(readText(t, file)) {
			t.Errorf("%s: %s is not %s", file, constant, version)
		}
		if golden, _ := filepath.Glob(dir + "/*"); len(golden) == 0 {
			t.Errorf("%s: no golden files", dir)
		}
		if !strings.Contains(readText(t, path.Join(path.Dir(file), "formats_test.go")), "func "+test+"(") {
			t.Errorf("%s: no %s", file, test)
		}
	}
}

// TestPackageMap compares the package map of docs/architecture.md with the packages
// that exist: each entry is a directory, and each package is an entry or below one.
func TestPackageMap(t *testing.T) {
	_, after, _ := strings.Cut(readText(t, "docs/architecture.md"), "\n## Packages\n")
	_, block, _ := strings.Cut(after, "```\n")
	block, _, _ = strings.Cut(block, "```")
	var listed []string
	for line := range strings.Lines(block) {
		dir, _, _ := strings.Cut(line, " ")
		listed = append(listed, dir)
		if _, err := os.Stat(dir); err != nil {
			t.Error(err)
		}
	}
	for _, s := range sources(t) {
		if dir := s.dir(); dir != "." && !within(dir, listed) {
			t.Errorf("%s is not in the package map", dir)
		}
	}
}

// TestExamples checks that public packages have Example functions. Test suites and
// the parts of the software machine need none: soft and softtest are their entrances.
func TestExamples(t *testing.T) {
	has := map[string]bool{}
	for _, s := range sources(t) {
		if dir := s.dir(); dir != "." && !s.main() && !s.test() && !exempt(dir) {
			has[dir] = has[dir] || false
		}
		if !s.test() {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), s.path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Example") {
				has[s.dir()] = true
			}
		}
	}
	for dir, ok := range has {
		if !ok {
			t.Errorf("%s has no Example function", dir)
		}
	}
}

func exempt(dir string) bool {
	return within(dir, []string{"internal", "lab", "clib"}) || strings.Contains(dir, "/internal") ||
		strings.HasPrefix(dir, "soft/") || strings.HasSuffix(dir, "test") && dir != "softtest"
}

// TestDriverBranches compares the table of driver branches with the client's.
func TestDriverBranches(t *testing.T) {
	text := readText(t, "docs/compatibility.md")
	for _, f := range nvrm.Families {
		state := "believed"
		if f.Seen != "" {
			state = "seen: " + f.Seen
		}
		if row := fmt.Sprintf("| %d | %s to %s | %s |\n", f.Branch, f.First, f.Last, state); !strings.Contains(text, row) {
			t.Errorf("docs/compatibility.md lacks the row %s", row)
		}
	}
}
