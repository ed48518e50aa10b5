package culvert_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var ownVariable = regexp.MustCompile("^(CULVERT_[A-Z0-9_]+)=?$")

// notShipped are directories of programs that build and test Culvert.
var notShipped = []string{"lab", "internal/quality", "gpu/kernels/gen", otherModule}

// docs/security.md lists every variable of Culvert that the code names.
func TestVariablesAreListed(t *testing.T) {
	text := readText(t, "docs/security.md")
	found := 0
	for _, s := range parse(t, parser.SkipObjectResolution) {
		if s.test() || within(s.dir(), notShipped) {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			value, _ := strconv.Unquote(lit.Value)
			if m := ownVariable.FindStringSubmatch(value); m != nil {
				found++
				if !strings.Contains(text, "`"+m[1]+"`") {
					t.Errorf("%s: docs/security.md does not list %s", s.path, m[1])
				}
			}
			return true
		})
	}
	if found < 10 {
		t.Errorf("%d variables found", found)
	}
}
