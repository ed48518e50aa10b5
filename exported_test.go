package culvert_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestExportedIdentifiers checks that no exported identifier of a public package
// mentions a type of an internal package: users could not name it.
func TestExportedIdentifiers(t *testing.T) {
	packages := map[string]*publicPackage{}
	for _, s := range parse(t, 0) {
		if s.test() || s.main() || internal(s.dir()) {
			continue
		}
		p := packages[s.dir()]
		if p == nil {
			p = &publicPackage{dir: s.dir()}
			packages[s.dir()] = p
		}
		p.files = append(p.files, s.file)
	}
	for _, p := range packages {
		for _, l := range p.leaks() {
			t.Errorf("%s is a type of an internal package", l)
		}
	}
}

func internal(dir string) bool { return slices.Contains(strings.Split(dir, "/"), "internal") }

// A publicPackage is one that users can import.
type publicPackage struct {
	dir   string
	files []*ast.File

	imports map[string]string // of the file that is looked at: name to path
	aliases map[string]string // local names of internal types
	found   []string
}

func (p *publicPackage) leaks() []string {
	p.aliases = map[string]string{}
	p.eachSpec(func(s ast.Spec) {
		if t, ok := s.(*ast.TypeSpec); ok && t.Assign.IsValid() {
			if name := p.internalType(t.Type); name != "" {
				p.aliases[t.Name.Name] = name
			}
		}
	})
	p.eachSpec(p.spec)
	for _, f := range p.files {
		p.enter(f)
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Name.IsExported() && ast.IsExported(receiver(fn)) {
				p.check(join(receiver(fn), fn.Name.Name), fn.Type)
			}
		}
	}
	return p.found
}

// receiver returns the name of a method's type, and of a function its own.
func receiver(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return fn.Name.Name
	}
	t := fn.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}

func join(typ, name string) string {
	if typ == name {
		return name
	}
	return typ + "." + name
}

// enter reads the imports of a file.
func (p *publicPackage) enter(f *ast.File) {
	p.imports = map[string]string{}
	for _, im := range f.Imports {
		full, _ := strconv.Unquote(im.Path.Value)
		name := path.Base(full)
		if im.Name != nil {
			name = im.Name.Name
		}
		p.imports[name] = full
	}
}

func (p *publicPackage) eachSpec(fn func(ast.Spec)) {
	for _, f := range p.files {
		p.enter(f)
		for _, d := range f.Decls {
			if g, ok := d.(*ast.GenDecl); ok {
				for _, s := range g.Specs {
					fn(s)
				}
			}
		}
	}
}

// spec checks the exported names of a declaration.
func (p *publicPackage) spec(s ast.Spec) {
	switch s := s.(type) {
	case *ast.TypeSpec:
		if s.Name.IsExported() {
			p.check(s.Name.Name, s.Type)
			p.fields(s.Name.Name, s.TypeParams)
		}
	case *ast.ValueSpec:
		for i, n := range s.Names {
			switch {
			case !n.IsExported():
			case s.Type != nil:
				p.check(n.Name, s.Type)
			case i < len(s.Values):
				p.value(n.Name, s.Values[i])
			}
		}
	}
}

// value checks what a variable is initialized with, as far as that shows its type.
func (p *publicPackage) value(name string, e ast.Expr) {
	switch e := e.(type) {
	case *ast.UnaryExpr:
		p.value(name, e.X)
	case *ast.CompositeLit:
		p.check(name, e.Type)
	case *ast.FuncLit:
		p.check(name, e.Type)
	}
}

// check looks for internal types in what users see of a type.
func (p *publicPackage) check(name string, t ast.Expr) {
	if n := p.internalType(t); n != "" {
		p.found = append(p.found, fmt.Sprintf("%s.%s: %s", p.dir, name, n))
		return
	}
	switch t := t.(type) {
	case *ast.StarExpr:
		p.check(name, t.X)
	case *ast.ParenExpr:
		p.check(name, t.X)
	case *ast.ArrayType:
		p.check(name, t.Elt)
	case *ast.ChanType:
		p.check(name, t.Value)
	case *ast.Ellipsis:
		p.check(name, t.Elt)
	case *ast.MapType:
		p.check(name, t.Key)
		p.check(name, t.Value)
	case *ast.IndexExpr:
		p.check(name, t.X)
		p.check(name, t.Index)
	case *ast.IndexListExpr:
		p.check(name, t.X)
		for _, i := range t.Indices {
			p.check(name, i)
		}
	case *ast.BinaryExpr: // of a constraint
		p.check(name, t.X)
		p.check(name, t.Y)
	case *ast.UnaryExpr:
		p.check(name, t.X)
	case *ast.FuncType:
		p.fields(name, t.TypeParams)
		p.fields(name, t.Params)
		p.fields(name, t.Results)
	case *ast.StructType:
		p.members(name, t.Fields)
	case *ast.InterfaceType:
		p.members(name, t.Methods)
	}
}

func (p *publicPackage) fields(name string, list *ast.FieldList) {
	if list == nil {
		return
	}
	for _, f := range list.List {
		p.check(name, f.Type)
	}
}

// members checks the exported fields of a struct and the methods of an interface.
func (p *publicPackage) members(name string, list *ast.FieldList) {
	for _, f := range list.List {
		if len(f.Names) == 0 && ast.IsExported(embedded(f.Type)) {
			p.check(name, f.Type)
		}
		for _, n := range f.Names {
			if n.IsExported() {
				p.check(name+"."+n.Name, f.Type)
			}
		}
	}
}

// embedded returns the name of an embedded field.
func embedded(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.StarExpr:
		return embedded(t.X)
	case *ast.SelectorExpr:
		return t.Sel.Name
	case *ast.IndexExpr:
		return embedded(t.X)
	case *ast.Ident:
		return t.Name
	}
	return "X" // an element of a constraint
}

// internalType returns the name of an internal type, "" for any other expression.
func (p *publicPackage) internalType(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.Ident:
		return p.aliases[t.Name]
	case *ast.SelectorExpr:
		x, ok := t.X.(*ast.Ident)
		if !ok {
			return ""
		}
		if own, ok := strings.CutPrefix(p.imports[x.Name], module); ok && internal(own) {
			return own + "." + t.Sel.Name
		}
	}
	return ""
}

// TestExportedIdentifiersFindsLeaks checks the check.
func TestExportedIdentifiersFindsLeaks(t *testing.T) {
	const text = `package p
import ("` + module + `internal/dev"; low "` + module + `internal/abi/nvme")
type seam = dev.Seam
type ( Good struct { seam; hidden dev.OS }; Embeds struct { dev.Node }; Field struct { OS dev.OS }; Alias = dev.Mapping; Map map[string][]dev.OS )
type Iface interface { M(low.Command) error }
type Generic[T dev.Owner] struct{}
func (Good) Method() (*dev.OS, error)
func (hidden) Method() dev.OS
func Func(func(...dev.OS))
func Local() seam
func private() dev.OS
var V, _ = dev.OS(nil), 0
var W = &dev.Seam{}
const Number = low.SUCCESS
`
	f, err := parser.ParseFile(token.NewFileSet(), "p.go", text, 0)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range (&publicPackage{dir: "p", files: []*ast.File{f}}).leaks() {
		name, _, _ := strings.Cut(l, ":")
		got = append(got, strings.TrimPrefix(name, "p."))
	}
	slices.Sort(got)
	want := []string{"Alias", "Embeds", "Field.OS", "Func", "Generic", "Good.Method", "Iface.M", "Local", "Map", "W"}
	if !slices.Equal(got, want) {
		t.Errorf("found %v, want %v", got, want)
	}
}
