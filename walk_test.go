package culvert_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A hop is one line of a walk in docs/architecture.md: a function, the function that
// calls it, and how.
type hop struct {
	line, in, name string // the package's directory or the C file; Type.Method or function
	caller         *hop
	as             string // by which the caller names it
	iface          string // "package: interface" through which it is called
}

var hopLine = regexp.MustCompile("^( *)- `([^`: ]+): ([^`]+)`(?: \\((as|implements) `([^`]+)`\\))?(:|$)")

// walks returns the hops of each walk.
func walks(t *testing.T) map[string][]*hop {
	t.Helper()
	_, text, _ := strings.Cut(readText(t, "docs/architecture.md"), "\n## Four walks\n")
	text, _, _ = strings.Cut(text, "\n## ")
	all := map[string][]*hop{}
	var title string
	var callers []*hop // by depth
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if name, ok := strings.CutPrefix(line, "### "); ok {
			title, callers = name, nil
		}
		if !strings.HasPrefix(strings.TrimSpace(line), "- ") {
			continue
		}
		m := hopLine.FindStringSubmatch(line)
		if m == nil {
			t.Errorf("not a hop: %s", line)
			continue
		}
		h := &hop{line: strings.TrimSpace(line), in: m[2], name: m[3]}
		h.as = h.name[strings.LastIndex(h.name, ".")+1:]
		switch m[4] {
		case "as":
			h.as = m[5]
		case "implements":
			h.iface = m[5]
		}
		depth := len(m[1]) / 2
		if depth > len(callers) || depth == 0 && len(callers) > 0 {
			t.Errorf("%s: wrong indentation: %s", title, line)
			continue
		}
		if callers = callers[:depth]; depth > 0 {
			h.caller = callers[depth-1]
		}
		callers = append(callers, h)
		all[title] = append(all[title], h)
	}
	return all
}

// A goPackage is what a walk needs of a package.
type goPackage struct {
	funcs   map[string]*ast.FuncDecl // by name, methods as Type.Method
	ifaces  map[string][]string      // methods by name
	imports []string                 // of the module, direct
}

func parsePackage(t *testing.T, dir string) *goPackage {
	t.Helper()
	p := &goPackage{funcs: map[string]*ast.FuncDecl{}, ifaces: map[string][]string{}}
	names, err := filepath.Glob(dir + "/*.go")
	if err != nil || len(names) == 0 {
		t.Fatalf("package %s: %d files, %v", dir, len(names), err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, im := range (source{name, file}).imports() {
			if own, ok := strings.CutPrefix(im, module); ok {
				p.imports = append(p.imports, own)
			}
		}
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				p.funcs[funcName(d)] = d
			case *ast.GenDecl:
				p.addInterfaces(d)
			}
		}
	}
	return p
}

func funcName(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return d.Name.Name
	}
	of := d.Recv.List[0].Type
	if star, ok := of.(*ast.StarExpr); ok {
		of = star.X
	}
	return fmt.Sprint(of) + "." + d.Name.Name
}

func (p *goPackage) addInterfaces(d *ast.GenDecl) {
	for _, spec := range d.Specs {
		ts, ok := spec.(*ast.TypeSpec)
		if !ok {
			continue
		}
		if it, ok := ts.Type.(*ast.InterfaceType); ok {
			for _, m := range it.Methods.List {
				for _, name := range m.Names {
					p.ifaces[ts.Name.Name] = append(p.ifaces[ts.Name.Name], name.Name)
				}
			}
		}
	}
}

// walker checks hops.
type walker struct {
	t        *testing.T
	packages map[string]*goPackage
}

func (w *walker) pkg(dir string) *goPackage {
	if w.packages[dir] == nil {
		w.packages[dir] = parsePackage(w.t, dir)
	}
	return w.packages[dir]
}

// below reports whether a package imports another, directly or not.
func (w *walker) below(from, to string, seen map[string]bool) bool {
	if from == to {
		return true
	}
	seen[from] = true
	return slices.ContainsFunc(w.pkg(from).imports, func(im string) bool { return !seen[im] && w.below(im, to, seen) })
}

func isC(in string) bool { return path.Ext(in) == ".c" }

// names returns the identifiers in the body of a function, and whether it exists.
func (w *walker) names(h *hop) (map[string]bool, bool) {
	found := map[string]bool{}
	if isC(h.in) {
		body := regexp.MustCompile(`(?ms)^[a-zA-Z_][^;{}]*\b` + h.name + `\([^;{}]*\)\s*^\{(.*?)^\}`).FindStringSubmatch(readText(w.t, h.in))
		if body == nil {
			return nil, false
		}
		for _, word := range regexp.MustCompile(`\w+`).FindAllString(body[1], -1) {
			found[word] = true
		}
		return found, true
	}
	d, ok := w.pkg(h.in).funcs[h.name]
	if !ok || d.Body == nil {
		return nil, false
	}
	ast.Inspect(d.Body, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			found[id.Name] = true
		}
		return true
	})
	return found, true
}

func (w *walker) check(h *hop) {
	if _, ok := w.names(h); !ok {
		w.t.Errorf("%s: there is no such function", h.line)
		return
	}
	if h.caller == nil {
		return
	}
	if called, ok := w.names(h.caller); ok && !called[h.as] {
		w.t.Errorf("%s: %s does not call %s", h.line, h.caller.name, h.as)
	}
	to := h.in
	if h.iface != "" {
		dir, name, _ := strings.Cut(h.iface, ": ")
		if !slices.Contains(w.pkg(dir).ifaces[name], h.as) {
			w.t.Errorf("%s: the interface has no method %s", h.line, h.as)
		}
		to = dir
	}
	if !isC(h.caller.in) && !isC(h.in) && !w.below(h.caller.in, to, map[string]bool{}) {
		w.t.Errorf("%s: %s does not import %s, so the call goes up", h.line, h.caller.in, to)
	}
}

// TestWalks checks the walks of docs/architecture.md: each function exists and is
// called by the one above it, and imports point downward.
func TestWalks(t *testing.T) {
	w := &walker{t, map[string]*goPackage{}}
	all := walks(t)
	if len(all) != 4 {
		t.Errorf("found %d walks", len(all))
	}
	for title, hops := range all {
		if len(hops) < 10 {
			t.Errorf("%s has %d hops", title, len(hops))
		}
		for _, h := range hops {
			w.check(h)
		}
	}
}

// TestWalksCanFail breaks one property of a hop after the other.
func TestWalksCanFail(t *testing.T) {
	run := &hop{in: "internal/ladder", name: "Plan.Run"}
	for name, h := range map[string]*hop{
		"no function":  {in: "internal/ladder", name: "Plan.Walk", as: "runChecked", caller: run},
		"not called":   {in: "internal/ladder", name: "Plan.Best", as: "Best", caller: run},
		"upward":       {in: "cufile", name: "Open", as: "runChecked", caller: run},
		"no interface": {in: "internal/ladder", name: "ringRoute.Run", as: "runChecked", iface: "internal/ladder: Route", caller: run},
		"no C":         {in: "clib/shim/cufile.c", name: "cuFileWalk", as: "runChecked", caller: run},
	} {
		inner := &testing.T{}
		(&walker{inner, map[string]*goPackage{}}).check(h)
		if !inner.Failed() {
			t.Errorf("%s: not noticed", name)
		}
	}
}
