package culvert_test

import (
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/culvert-io/culvert/"

// A source is a Go file of the module.
type source struct {
	path string // below the root, with slashes
	file *ast.File
}

func (s source) dir() string { return path.Dir(s.path) }
func (s source) test() bool  { return strings.HasSuffix(s.path, "_test.go") }
func (s source) main() bool  { return s.file.Name.Name == "main" }
func (s source) abi() bool   { return strings.HasPrefix(s.path, "internal/abi/") }
func (s source) unsafe() bool {
	return strings.HasSuffix(strings.TrimSuffix(s.path, "_test.go"), "_unsafe") || strings.HasSuffix(s.path, "_unsafe.go")
}

func (s source) imports() (paths []string) {
	for _, im := range s.file.Imports {
		p, _ := strconv.Unquote(im.Path.Value)
		paths = append(paths, p)
	}
	return paths
}

// sources returns all files, with imports and comments only.
func sources(t *testing.T) []source { return parse(t, parser.ImportsOnly|parser.ParseComments) }

func parse(t *testing.T, mode parser.Mode) []source {
	t.Helper()
	var list []source
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (p == "tools" || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && p != ".") {
			return fs.SkipDir
		}
		if !strings.HasSuffix(p, ".go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), p, nil, mode)
		list = append(list, source{filepath.ToSlash(p), f})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// below says for a directory which others it may import. Directories are matched by
// the longest prefix; one that is not listed may import any.
var below = map[string][]string{
	"gpu":                 {"internal/enum", "gpu", "internal/abi/cuda"},
	"gpu/cuda":            {"internal/env", "gpu", "internal/abi/cuda", "internal/dl", "internal/ptx"},
	"gpu/gputest":         {"gpu", "internal/abi/cuda"},
	"gpu/kernels/gen":     {"gpu", "internal/dl", "internal/ptx"},
	"internal/abi":        {"internal/abi"},
	"internal/dl":         {},
	"internal/ptx":        {"gpu"},
	"internal/cgroup":     {},
	"internal/storage":    {"internal/cgroup", "internal/tune", "route"},
	"internal/blockstack": {"internal/sysfs", "internal/dev", "internal/storage", "route"},
	"internal/uring":      {},
	"internal/wc":         {},
	"internal/dev":        {"internal/abi", "internal/dev"},
	"internal/rm":         {"internal/abi", "internal/dev", "internal/wc", "gpu"},
	"internal/trace":      {"internal/env", "route"},
	"internal/ring":       {"internal/sysfs", "gpu", "internal/trace", "internal/uring", "internal/storage", "internal/tune", "internal/wc", "route"},
	"route":               {"internal/enum", "internal/human"},
	"internal/ladder":     {"internal/sysfs", "internal/env", "gpu", "internal/blockstack", "internal/abi/cuda", "internal/storage", "internal/dev", "internal/ring", "internal/rm", "internal/trace", "internal/uring", "internal/wc", "internal/vendor", "internal/tune", "internal/human", "route"},
	"machine":             {"internal/env", "gpu", "internal/dev", "soft", "nvme", "rdma", "route"},
	"rdma":                {"internal/enum", "gpu", "internal/hostmem", "internal/verbs"},
	"rdma/cm":             {"internal/abi/rdmacm", "internal/dl", "rdma"},
	"rdma/ibverbs":        {"internal/abi/ibverbs", "internal/dl", "internal/env", "rdma"},
	"internal/verbs":      {"gpu", "rdma"},
	"cufile":              {"gpu", "internal/blockstack", "internal/dev", "internal/gate", "internal/hostmem", "internal/ladder", "internal/stats", "internal/storage", "internal/trace", "internal/tune", "machine", "route"},
	"internal/endpoint":   {"rdma"},
	"internal/enum":       {},
	"internal/sysfs":      {},
	"internal/env":        {},
	"internal/phase":      {"internal/env"},
	"internal/gate":       {},
	"internal/hostmem":    {},
	"internal/tune":       {"internal/env", "gpu", "internal/atomicfile"},
	"internal/crc32c":     {},
	"internal/atomicfile": {},
	"internal/human":      {"internal/env"},
	"internal/limit":      {},
	"internal/stats":      {"internal/env"},
	"internal/vendor":     {"gpu", "internal/dl"},
	"internal/bench":      {"gpu", "cufile", "route", "internal/limit", "internal/object", "internal/storage", "internal/vendor", "internal/human"},
	"soft":                {"internal/enum", "gpu", "internal/abi", "internal/cgroup", "internal/dev", "internal/ptx", "soft", "internal/hostmem", "internal/human", "internal/verbs", "rdma"},
	"softtest":            {"gpu", "machine", "soft"},
	"gdrcopy":             {"internal/enum", "gpu", "internal/dev", "internal/rm", "internal/wc", "machine"},
	"gpumem":              {"gpu", "internal/abi", "internal/dev", "machine"},
	"tensor":              {"gpu", "cufile", "route", "internal/atomicfile", "internal/crc32c", "internal/object", "internal/phase", "internal/storage", "internal/human"},
	"object":              {"internal/object"},
	"internal/object":     {"internal/crc32c", "internal/env", "internal/human", "internal/limit", "internal/object", "route"},
	"internal/remote":     {"internal/endpoint", "internal/enum", "gpu", "rdma", "route", "internal/abi/gdra", "internal/atomicfile", "internal/crc32c", "internal/limit"},
	"internal/rdmabench":  {"internal/endpoint", "rdma", "internal/abi/perftest"},
	"internal/transfer":   {"gpu", "cufile", "route", "internal/atomicfile", "internal/crc32c", "internal/limit", "internal/object", "internal/storage", "internal/human"},
	"internal/check":      {"internal/sysfs", "gpu", "cufile", "rdma", "route", "internal/cgroup", "internal/blockstack", "internal/object", "internal/storage", "internal/dev", "internal/ladder", "machine", "internal/human"},

	"internal/registration": {"internal/endpoint", "gpu", "rdma", "internal/human", "internal/tune"},
}

func layer(dir string) (name string, allowed []string, ok bool) {
	for d := dir; d != "." && d != "/"; d = path.Dir(d) {
		if allowed, ok = below[d]; ok {
			return d, allowed, true
		}
	}
	return "", nil, false
}

func within(p string, dirs []string) bool {
	for _, r := range dirs {
		if p == r || strings.HasPrefix(p, r+"/") {
			return true
		}
	}
	return false
}

// TestBorders checks the directions of imports in docs/architecture.md.
func TestBorders(t *testing.T) {
	for _, s := range sources(t) {
		if s.test() {
			continue
		}
		name, allowed, ok := layer(s.dir())
		for _, im := range s.imports() {
			own, ours := strings.CutPrefix(im, module)
			switch {
			case !ours || !ok:
			case within(own, []string{name}) || within(own, allowed):
			default:
				t.Errorf("%s: %s may not import %s", s.path, name, own)
			}
		}
	}
}

// TestOnlyHere checks imports that only some packages may have.
func TestOnlyHere(t *testing.T) {
	only := []struct {
		imported string
		dirs     []string
		why      string
	}{
		{"github.com/ebitengine/purego", []string{"internal/dl"}, "one package loads shared libraries"},
		{"github.com/spf13/cobra", []string{"cmd", "lab"}, "the library has no command line"},
		{"text/template", nil, "the linker then keeps the methods of all types, 3.5 MB of the command"},
		{"html/template", nil, "the linker then keeps the methods of all types, 3.5 MB of the command"},
		{module + "soft", []string{"machine", "soft", "softtest", "cmd", "clib", "examples", "lab"}, "code must not know which machine it runs on"},
		{module + "gpu/cuda", []string{"machine", "gpu/cuda", "gpu/kernels/gen"}, "code must not know which machine it runs on"},
	}
	for _, s := range sources(t) {
		for _, im := range s.imports() {
			if strings.Contains(im, "/internal/") && within(s.dir(), []string{"examples"}) && !s.test() {
				t.Errorf("%s imports %s: users copy examples", s.path, im)
			}
			for _, o := range only {
				if within(im, []string{o.imported}) && !within(s.dir(), o.dirs) && !s.test() {
					t.Errorf("%s imports %s: %s", s.path, im, o.why)
				}
			}
		}
	}
}

// TestEnvironment checks that only package env reads variables of the environment, and
// directories that they name: it knows when they do not count. Programs that are no
// part of a library may read them.
func TestEnvironment(t *testing.T) {
	reads := map[string]bool{"Getenv": true, "LookupEnv": true, "Environ": true, "ExpandEnv": true, "UserCacheDir": true, "UserConfigDir": true, "UserHomeDir": true, "TempDir": true}
	for _, s := range parse(t, 0) {
		if s.test() || s.main() && !within(s.dir(), []string{"clib/core"}) || within(s.dir(), []string{"internal/env", "lab"}) {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			call, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if from, ok := call.X.(*ast.Ident); ok && from.Obj == nil && (from.Name == "os" || from.Name == "syscall") && reads[call.Sel.Name] {
				t.Errorf("%s calls %s.%s: call package env", s.path, from.Name, call.Sel.Name)
			}
			return true
		})
	}
}

// TestUnsafeHasAnAddress checks that package unsafe is imported only in files whose
// names say so.
func TestUnsafeHasAnAddress(t *testing.T) {
	for _, s := range sources(t) {
		for _, im := range s.imports() {
			if im == "unsafe" && !s.unsafe() && !s.abi() && !s.test() && !within(s.dir(), []string{"clib"}) {
				t.Errorf("%s imports unsafe: move that part to a file named *_unsafe.go", s.path)
			}
		}
	}
}

// TestPackagesAreExplained checks that every package has a comment.
func TestPackagesAreExplained(t *testing.T) {
	explained := map[string]bool{}
	for _, s := range sources(t) {
		if s.test() {
			continue
		}
		explained[s.dir()] = explained[s.dir()] || s.file.Doc != nil
	}
	for dir, ok := range explained {
		if !ok {
			t.Errorf("%s has no package comment", dir)
		}
	}
}

// The errors of a program for another system begin with one line that says so, "build
// constraints exclude all Go files in …/machine", before undefined names of packages below.
func TestOtherSystemsAreRefused(t *testing.T) {
	for _, system := range []string{"darwin", "windows", "freebsd"} {
		other := build.Default
		other.GOOS = system
		if p, err := other.ImportDir("machine", 0); err != nil || len(p.GoFiles) > 0 {
			t.Errorf("%s: package machine has %q, %v", system, p.GoFiles, err)
		}
	}
}
