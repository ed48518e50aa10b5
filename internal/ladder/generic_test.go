package ladder

import (
	"go/ast"
	"go/parser"
	"go/token"
	"testing"
)

// TestGenericLadder checks that the files which serve every route know none of them by
// its type: what they need of a route is in Route, Traits or route.ID.
func TestGenericLadder(t *testing.T) {
	for _, name := range []string{"ladder.go", "plan.go", "choose.go", "route.go"} {
		files := token.NewFileSet()
		f, err := parser.ParseFile(files, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if a, ok := n.(*ast.TypeAssertExpr); ok && !isName(a.Type, "annotator") {
				t.Errorf("%s: type assertion", files.Position(a.Pos()))
			}
			return true
		})
	}
}

// isName reports whether a type is written as a name; annotator is an ability of sources.
func isName(e ast.Expr, name string) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == name
}
