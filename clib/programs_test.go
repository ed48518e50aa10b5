package clib_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func diff(t *testing.T, what, got, want string) {
	t.Helper()
	if d := cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// culvertRun runs a program of programs/ as a user does. They are linked
// without a path to any library.
func culvertRun(t *testing.T, dir, program string, args ...string) outcome {
	t.Helper()
	libraries(t)
	bin := filepath.Join(root(t), "bin")
	cmd := exec.Command(filepath.Join(bin, "culvert"), append([]string{"run", "--", filepath.Join(bin, "programs", program)}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(softEnv(), "CULVERT_LIB="+filepath.Join(root(t), "lib"))
	return finish(t, cmd)
}

func TestStrrev(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "test.txt")
	const text, reversed = "Hello, GDS World!", "!dlroW SDG ,olleH"
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{reversed, text} {
		r := culvertRun(t, dir, "strrev", "test.txt")
		diff(t, "strrev", r.stdout+r.stderr, "sys_len : 17\n"+want+"\nSee also test.txt\n")
		got, err := os.ReadFile(file)
		if err != nil || string(got) != want || r.status != 0 {
			t.Errorf("the file is %q, %v, status %d; want %q", got, err, r.status, want)
		}
	}
}

func TestReadWrite(t *testing.T) {
	for _, program := range []string{"rw", "rw++"} {
		dir := t.TempDir()
		r := culvertRun(t, dir, program, "data")
		diff(t, program, r.stdout+r.stderr, "wrote and read 4194304 bytes\n")
		if st, err := os.Stat(filepath.Join(dir, "data")); err != nil || st.Size() != 4<<20 || r.status != 0 {
			t.Errorf("%s: file %v, %v, status %d", program, st, err, r.status)
		}
		r = culvertRun(t, dir, program, "no/such/file")
		if r.status != 1 || !strings.Contains(r.stderr, "No such file") {
			t.Errorf("%s on a file that is not there: %+v", program, r)
		}
	}
}

func TestPinned(t *testing.T) {
	r := culvertRun(t, t.TempDir(), "pinned")
	lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
	if len(lines) != 5 || r.status != 0 {
		t.Fatalf("pinned: %+v", r)
	}
	for i, prefix := range []string{"context = 0x", "device_memory_pointer = 0x", "host_page_locked_memory = 0x"} {
		if !strings.HasPrefix(lines[i], prefix) {
			t.Errorf("line %d is %q", i, lines[i])
		}
	}
	diff(t, "pinned", strings.Join(lines[3:], "\n"), "host_page_locked_memory[0] = 123.000000\nhost_page_locked_memory[0] = 555.000000")

	r = culvertRun(t, t.TempDir(), "pinned", "fail")
	want := "  cuMemAlloc_v2(&device_memory, 100) failed. \n  code = CUDA_ERROR_NOT_INITIALIZED, message = initialization error\n"
	want = strings.Replace(want, "_v2", "", 1)
	if r.status != 1 || !strings.HasPrefix(r.stdout, "pinned.c:") || !strings.HasSuffix(r.stdout, want) {
		t.Errorf("pinned fail: %+v", r)
	}
}

func TestCounters(t *testing.T) {
	r := culvertRun(t, t.TempDir(), "mapped")
	diff(t, "mapped", r.stdout+r.stderr, "host equals device address\nResults: 512000\n")
	for model, memory := range map[string]string{"h200": "managed", "pageable": "pageable"} {
		t.Setenv("CULVERT_SOFT", "memory=256M,poison=1,model="+model)
		r := culvertRun(t, t.TempDir(), "uvm")
		diff(t, "uvm on "+model, r.stdout+r.stderr, "counter in "+memory+" memory\nResults: 512000\n")
	}
}
