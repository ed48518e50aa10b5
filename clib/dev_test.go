package clib_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// withNodes runs a program on the software machine with its device nodes.
func withNodes(t *testing.T, lib string, argv ...string) outcome {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	soft := filepath.Join(lib, "soft")
	cmd.Env = append(softEnv(), "LD_LIBRARY_PATH="+lib+":"+soft, "LD_PRELOAD="+filepath.Join(soft, "libculvert-dev.so"))
	return finish(t, cmd)
}

// TestNodes: a C program opens device nodes, copies and closes descriptors in every way,
// maps and unmaps, and has children. The Go core starts with the first node.
func TestNodes(t *testing.T) {
	r := withNodes(t, libraries(t), compile(t, "nodes.c"))
	golden(t, "nodes.txt", r.stdout)
	if r.status != 0 || r.stderr != "" {
		t.Errorf("status %d, stderr %q", r.status, r.stderr)
	}
}

// TestNodesOfOthers: programs that were not built here find nodes and files, too.
func TestNodesOfOthers(t *testing.T) {
	r := withNodes(t, libraries(t), "sh", "-c", `
		cat /proc/driver/gdrdrv/params | head -1
		test -c /dev/gdrdrv && test ! -e /dev/gdrdrv1 && echo node
		stat -c %F /dev/nvidia-fs0 /proc/driver/nvidia-fs/version
		ls /dev/gpumem`)
	want := "Version: 2.6\nnode\ncharacter special file\nregular empty file\n/dev/gpumem\n"
	if r.stdout != want || r.stderr != "" {
		t.Errorf("printed %q, want %q; stderr %q", r.stdout, want, r.stderr)
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
