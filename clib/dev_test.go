package clib_test

import (
	"embed"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// devSource is libculvert-dev.so, embedded so that "go test -overlay" can replace it.
//
//go:embed shim/dev.c shim/dev_*.c
var devSource embed.FS

// buildNodes builds libculvert-dev.so of devSource.
func buildNodes(t *testing.T, lib string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Symlink(filepath.Join(lib, "libculvert.so"), filepath.Join(dir, "libculvert.so")); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(dir, devSource); err != nil {
		t.Fatal(err)
	}
	sources, err := fs.Glob(devSource, "shim/*.c")
	if err != nil {
		t.Fatal(err)
	}
	so := filepath.Join(dir, "libculvert-dev.so")
	args := []string{
		"-std=gnu11", "-O2", "-g", "-fPIC", "-shared", "-fvisibility=hidden", "-fno-delete-null-pointer-checks", "-pthread",
		"-Ishim", "-Iinclude", "-o", so, "shim/gocore.c", "-Wl,--version-script=shim/dev.map", "-ldl",
	}
	for _, name := range sources {
		args = append(args, filepath.Join(dir, name))
	}
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("gcc %v: %v\n%s", args, err, out)
	}
	return so
}

// withNodes runs a program on the software machine with its device nodes.
func withNodes(t *testing.T, lib, nodes string, argv ...string) outcome {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(softEnv(), "LD_LIBRARY_PATH="+lib+":"+filepath.Join(lib, "soft"), "LD_PRELOAD="+nodes)
	return finish(t, cmd)
}

// TestNodes: a C program opens device nodes, copies and closes descriptors in every way,
// maps and unmaps, and has children. The Go core starts with the first node.
func TestNodes(t *testing.T) {
	lib := libraries(t)
	r := withNodes(t, lib, buildNodes(t, lib), compile(t, "nodes.c"))
	golden(t, "nodes.txt", r.stdout)
	if r.status != 0 || r.stderr != "" {
		t.Errorf("status %d, stderr %q", r.status, r.stderr)
	}
}

// TestNodesOfOthers: programs that were not built here find nodes and files, too.
func TestNodesOfOthers(t *testing.T) {
	lib := libraries(t)
	r := withNodes(t, lib, filepath.Join(lib, "soft", "libculvert-dev.so"), "sh", "-c", `
		cat /proc/driver/gdrdrv/params | head -1
		test -c /dev/gdrdrv && test ! -e /dev/gdrdrv1 && echo node
		stat -c %F /dev/nvidia-fs0 /proc/driver/nvidia-fs/version
		ls /dev/gpumem`)
	want := "Version: 2.6\nnode\ncharacter special file\nregular empty file\n/dev/gpumem\n"
	if r.stdout != want || r.stderr != "" {
		t.Errorf("printed %q, want %q; stderr %q", r.stdout, want, r.stderr)
	}
}

// TestConstructors: the libraries of a program begin before preloaded ones, and find the C
// library's functions, and nodes.
func TestConstructors(t *testing.T) {
	lib, dir := libraries(t), t.TempDir()
	so := filepath.Join(dir, "libfirst.so")
	if out, err := exec.Command("gcc", "-shared", "-fPIC", "-DLIBRARY", "-o", so, "testdata/constructor.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	exe, nodes := compile(t, "constructor.c", so), buildNodes(t, lib)
	alone, r := run(t, lib, exe), withNodes(t, lib, nodes, exe)
	if r != alone || !strings.HasSuffix(r.stdout, ", then No such file or directory\n") {
		t.Errorf("%+v, without libculvert-dev.so %+v", r, alone)
	}
	t.Setenv("NODES", "1")
	if r := withNodes(t, lib, nodes, exe); !strings.HasSuffix(r.stdout, "\nversion: 2.28\n") || r.stderr != "" {
		t.Errorf("nodes: %+v", r)
	}
}

// TestNodesSymbols: the library has every function that its version script names and no
// other: one more would take the place of a program's own.
func TestNodesSymbols(t *testing.T) {
	script, err := os.ReadFile("shim/dev.map")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(script), "global:")
	list, _, _ = strings.Cut(list, "local:")
	want := map[string]bool{}
	for _, name := range regexp.MustCompile(`\w+`).FindAllString(list, -1) {
		want[name] = true
	}
	out, err := exec.Command("nm", "-D", "--defined-only", filepath.Join(libraries(t), "soft", "libculvert-dev.so")).Output()
	if err != nil {
		t.Skipf("needs nm: %v", err)
	}
	for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		name := line[strings.LastIndexByte(line, ' ')+1:]
		if !want[name] {
			t.Errorf("%s is exported", name)
		}
		delete(want, name)
	}
	if len(want) != 0 {
		t.Errorf("not exported: %v", want)
	}
}

// TestDMABuf: a C program maps GPU memory by its dma-buf, with libculvert-dev.so. Without it
// the attribute says that it cannot.
func TestDMABuf(t *testing.T) {
	lib, exe := libraries(t), compile(t, "dmabuf.c", "-ldl")
	r := withNodes(t, lib, buildNodes(t, lib), exe)
	golden(t, "dmabuf.txt", r.stdout)
	if r.status != 0 || r.stderr != "" {
		t.Errorf("status %d, stderr %q", r.status, r.stderr)
	}
	r = run(t, lib, exe)
	_, rest, _ := strings.Cut(r.stdout, "\n")
	want := "dma-bufs: 1, which can be mapped: 0\n"
	if last := "a dma-buf without libculvert-dev.so: No such device\n"; !strings.HasPrefix(rest, want) || !strings.HasSuffix(rest, last) {
		t.Errorf("without libculvert-dev.so it printed %q", r.stdout)
	}
}

// TestLate: opening /dev/gdrdrv starts no Go core, so that children of the program have GPUs.
func TestLate(t *testing.T) {
	lib := libraries(t)
	nodes, exe := buildNodes(t, lib), compile(t, "late.c", "-ldl")
	r := withNodes(t, lib, nodes, exe)
	golden(t, "late.txt", r.stdout)
	if r.status != 0 || r.stderr != "" {
		t.Errorf("status %d, stderr %q", r.status, r.stderr)
	}
	t.Setenv("CULVERT_SOFT", "memory=256M,without=gdrdrv")
	if r := withNodes(t, lib, nodes, exe); r.stdout != "parent: open: No such file or directory\n" {
		t.Errorf("without gdrdrv it printed %q", r.stdout)
	}
}
