package clib_test

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	module "github.com/culvert-io/culvert"
	"github.com/culvert-io/culvert/clib/internal/differential"
)

func TestLayouts(t *testing.T) {
	r := run(t, libraries(t), compile(t, "layout.c"))
	golden(t, "layout.txt", r.stdout)
}

// TestHeaders compiles each header alone, as C and as C++.
func TestHeaders(t *testing.T) {
	libraries(t)
	for _, header := range []string{"cuda.h", "cuda_runtime.h", "cufile.h", "infiniband/verbs.h"} {
		src := filepath.Join(t.TempDir(), "a.c")
		if err := os.WriteFile(src, []byte("#include <"+header+">\nint main(void) { return 0; }\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		for _, lang := range [][]string{{"gcc", "-std=c11", "-D_GNU_SOURCE"}, {"g++", "-xc++", "-std=c++17"}} {
			args := append(lang[1:], "-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only", "-Iinclude", src)
			if out, err := exec.Command(lang[0], args...).CombinedOutput(); err != nil {
				t.Errorf("%s %s: %v\n%s", lang[0], header, err, out)
			}
		}
	}
}

func TestSymbols(t *testing.T) {
	lib := libraries(t)
	golden(t, "symbols.txt", strings.Join(defined(t, filepath.Join(lib, "libcufile.so.0")), "\n")+"\n")
	for name, want := range map[string]string{
		"soft/libcuda.so.1":      "culvert_soft_machine",
		"soft/libcudart.so.12":   "cudaMalloc",
		"soft/libcudart.so.13":   "cudaMalloc",
		"libculvert.so":          "culvert_core_open",
		"soft/../libcufile.so":   "culvert_marker",
		"soft/libcuda.so":        "cuMemAlloc_v2",
		"soft/libcudart.so":      "cudaEventElapsedTime",
		"soft/../libcufile.so.0": "cuFileDriverClose",
	} {
		names := defined(t, filepath.Join(lib, name))
		if !slices.Contains(names, want) {
			t.Errorf("%s does not export %s", name, want)
		}
		for _, n := range names {
			if !strings.HasPrefix(n, "cu") && !strings.HasPrefix(n, "__cuda") && !strings.HasPrefix(n, "libcudart.so.") {
				t.Errorf("%s exports %s", name, n)
			}
		}
	}
}

func defined(t *testing.T, lib string) (names []string) {
	t.Helper()
	out, err := exec.Command("nm", "-D", "--defined-only", lib).Output()
	if err != nil {
		t.Fatalf("nm %s: %v", lib, err)
	}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		name, _, _ := strings.Cut(f[len(f)-1], "@")
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func TestDynamicSection(t *testing.T) {
	lib := libraries(t)
	for file, soname := range map[string]string{
		"libcufile.so.0":       "libcufile.so.0",
		"libculvert.so":        "libculvert.so",
		"soft/libcuda.so.1":    "libcuda.so.1",
		"soft/libcudart.so.12": "libcudart.so.12",
		"soft/libcudart.so.13": "libcudart.so.13",
		"soft/libibverbs.so.1": "libibverbs.so.1",
	} {
		out, err := exec.Command("readelf", "-dW", "--dyn-syms", filepath.Join(lib, file)).Output()
		if err != nil {
			t.Fatal(err)
		}
		text := string(out)
		if !strings.Contains(text, "soname: ["+soname+"]") || !strings.Contains(text, "NODELETE") {
			t.Errorf("%s: SONAME is not %s, or dlclose would unload it:\n%s", file, soname, text)
		}
		if strings.Contains(text, " dladdr@") && strings.HasPrefix(file, "soft/") {
			t.Errorf("%s imports dladdr, which each process that it is preloaded into would pay for", file)
		}
		for line := range strings.Lines(text) {
			if strings.Contains(line, "(NEEDED)") && !strings.Contains(line, "[libc.so") && !strings.Contains(line, "[libpthread.so") && !strings.Contains(line, "[libdl.so") && !strings.Contains(line, "[ld-linux") {
				t.Errorf("%s needs more than the C library: %s", file, line)
			}
		}
	}
}

// TestQuiet: a process without calls has no Go runtime; with calls of any of the
// libraries it has one.
func TestQuiet(t *testing.T) {
	r := run(t, libraries(t), compile(t, "quiet.c"))
	diff(t, "quiet", r.stdout, `before: 1 thread, 0 core, CUDA_ERROR_NOT_READY, cudaErrorNotReady
after: threads, 1 core, version 1150, 1 device
`)
}

func TestFork(t *testing.T) {
	r := run(t, libraries(t), compile(t, "fork.c"), filepath.Join(t.TempDir(), "data"))
	diff(t, "fork", r.stdout+r.stderr, `fresh child: open 0, malloc 0
parent: register 0
late child: read -1 errno 5001
late child: open 5001, version 5001, count 0
late child: init 3, alloc 3, malloc 3, errno kept 1
late child: CUDA_ERROR_NOT_INITIALIZED, initialization error
fresh child: open 5001, malloc 3
parent: write 4096
`)
}

// A call uses a context of the Go core, and restores the caller's. The software
// machine keeps the two apart, so that this program can fail only on hardware.
func TestContextIsKept(t *testing.T) {
	r := run(t, libraries(t), compile(t, "context.c"), filepath.Join(t.TempDir(), "data"))
	diff(t, "context", r.stdout+r.stderr, `open 0: kept
register file 0: kept
register buffer 0: kept
read 4096: 4096: kept
read all: 4194304: kept
write all: 4194304: kept
read with none: 4194304: kept
close 0: kept
`)
}

func TestMisuse(t *testing.T) {
	r := run(t, libraries(t), compile(t, "misuse.c"), filepath.Join(t.TempDir(), "data"))
	golden(t, "misuse.txt", r.stdout)
	if r.status != 0 || r.stderr != "" {
		t.Errorf("status %d, stderr %q", r.status, r.stderr)
	}
}

// TestHandshake runs a shim with a Go core of another version, and without one.
func TestHandshake(t *testing.T) {
	lib := libraries(t)
	exe := compile(t, "quiet.c")
	dir := t.TempDir()
	link := func(name, target string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Link(target, filepath.Join(dir, name)); err != nil {
			data, err := os.ReadFile(target) // another file system
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name), data, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, name := range []string{"libcufile.so.0", "soft/libcuda.so.1", "soft/libcudart.so.13"} {
		link(name, filepath.Join(lib, name))
	}
	r := run(t, dir, exe)
	if !strings.Contains(r.stderr, "cannot find libculvert.so") || !strings.Contains(r.stdout, "after: no threads, 0 core, version 0, 0 device") {
		t.Errorf("without a core: %+v", r)
	}
	other := filepath.Join(dir, "other.c")
	if err := os.WriteFile(other, []byte(`#include <stddef.h>
const void *culvert_core_open(const char *version, const char **have) { (void)version; *have = "culvert-table-0"; return NULL; }
`), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-shared", "-fPIC", "-o", filepath.Join(dir, "libculvert.so"), other).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	r = run(t, dir, exe)
	if !strings.Contains(r.stderr, "its version is culvert-table-0, this library needs culvert-table-2-") || !strings.Contains(r.stdout, "version 0, 0 device") {
		t.Errorf("with a core of another build: %+v", r)
	}
}

// TestDriver and TestRuntime test the software CUDA call by call. The same programs
// must print the same lines on hardware (programs/hardware.sh).
func TestDriver(t *testing.T) { callByCall(t, "driver") }

func TestRuntime(t *testing.T) { callByCall(t, "runtime") }

func callByCall(t *testing.T, name string) {
	t.Helper()
	r := run(t, libraries(t), compile(t, name+".c"))
	golden(t, name+".txt", r.stdout)
	if r.status != 0 || r.stderr != "" {
		t.Errorf("status %d, stderr %q", r.status, r.stderr)
	}
}

func TestMissing(t *testing.T) {
	exe := compile(t, "missing.c")
	r := run(t, libraries(t), exe)
	diff(t, "missing", r.stdout, `801 801
801 801
801 801
last error 801, then 0
last error of a launch 801
last error of a launch 801
stub 0 1
table 500
`)
	const said = `culvert: cudaGraphCreate is not supported by the software machine
culvert: cuGraphCreate is not supported by the software machine
culvert: launching a kernel of the program, which is machine code for a GPU, is not supported by the software machine
`
	diff(t, "missing", r.stderr, said)
	t.Setenv("CULVERT_LOG", "errors")
	r = run(t, libraries(t), exe)
	if n := strings.Count(r.stderr, "fix: link the shared runtime"); n != 1 {
		t.Errorf("the cause of a runtime's failure was explained %d times:\n%s", n, r.stderr)
	}
}

// TestNames: programs that were linked against NVIDIA's libraries find every name.
func TestNames(t *testing.T) {
	lib := libraries(t)
	for list, library := range map[string]string{
		"names-cudart-12.txt": "soft/libcudart.so.12",
		"names-cudart-13.txt": "soft/libcudart.so.13",
		"names-cuda.txt":      "soft/libcuda.so.1",
	} {
		names := defined(t, filepath.Join(lib, library))
		text, err := os.ReadFile(filepath.Join("testdata", list))
		if err != nil {
			t.Fatal(err)
		}
		for name := range strings.Lines(string(text)) {
			name = strings.TrimSpace(name)
			if _, ok := slices.BinarySearch(names, name); !ok && !strings.HasPrefix(name, "#") {
				t.Errorf("%s does not export %s", library, name)
			}
		}
	}
}

func TestStress(t *testing.T) {
	threads, rounds := "64", "40"
	if testing.Short() {
		threads = "4"
	}
	r := run(t, libraries(t), compile(t, "stress.c"), t.TempDir(), threads, rounds, "1")
	diff(t, "stress", r.stdout+r.stderr, "0 failures\n")
}

// TestHost: signals, faults and dlclose of the program work as without the library.
func TestHost(t *testing.T) {
	r := run(t, libraries(t), compile(t, "host.c"))
	golden(t, "host.txt", r.stdout)
	if r.status != -1 {
		t.Errorf("a fault of the program ended it with status %d instead of a signal\n%s", r.status, r.stderr)
	}
}

// TestSignals: signals that the program waits for reach it, its threads keep their
// masks, and handlers without SA_ONSTACK have enough stack.
func TestSignals(t *testing.T) {
	r := run(t, libraries(t), compile(t, "signals.c"), filepath.Join(t.TempDir(), "data"))
	golden(t, "signals.txt", r.stdout)
	if r.status != 0 || r.stderr != "" {
		t.Errorf("status %d, stderr %q", r.status, r.stderr)
	}
}

// TestLeave: a program that ends without an alternate signal stack does not get Go's SIGURG,
// which would end it. The lock of the shared memory holds it where it leaves.
func TestLeave(t *testing.T) {
	lib, shared := libraries(t), filepath.Join(t.TempDir(), "shared")
	cmd := exec.Command(compile(t, "leave.c"))
	cmd.Env = append(softEnv(), "LD_LIBRARY_PATH="+lib+":"+filepath.Join(lib, "soft"), "CULVERT_SHARED="+shared)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	lock, err := os.OpenFile(shared, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.FcntlFlock(lock.Fd(), unix.F_SETLKW, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
		t.Fatal(err)
	}
	in.Close()
	if !waitUntilBlocked(cmd.Process.Pid, unix.SIGURG) {
		t.Error("SIGURG is not blocked while the program leaves")
	}
	lock.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// waitUntilBlocked waits until the first thread of a process has blocked a signal.
func waitUntilBlocked(pid int, sig unix.Signal) bool {
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			return false
		}
		_, text, _ := strings.Cut(string(status), "SigBlk:\t")
		mask, _ := strconv.ParseUint(strings.SplitN(text, "\n", 2)[0], 16, 64)
		if mask>>(sig-1)&1 == 1 {
			return true
		}
	}
	return false
}

// TestCancelled: a cancelled thread ends after the call, not inside.
func TestCancelled(t *testing.T) {
	r := run(t, libraries(t), compile(t, "cancel.c"))
	golden(t, "cancel.txt", r.stdout+r.stderr)
}

// TestSanitized runs the call-by-call programs with shims compiled with the address
// and undefined-behaviour sanitizers.
func TestSanitized(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the shims a second time: not in -short")
	}
	lib := libraries(t)
	dir := t.TempDir()
	const flags = "-fsanitize=address,undefined -fno-sanitize-recover=undefined"
	make := exec.Command("make", "-s", "-f", "clib/clib.mk", "LIB="+dir, "CLIB_CFLAGS=-std=gnu11 -O1 -g -fPIC -fvisibility=hidden -Iclib/include "+flags,
		"CLIB_LDFLAGS=-shared -Wl,-z,nodelete -pthread -ldl "+flags, dir+"/libcufile.so", dir+"/soft/libcuda.so", dir+"/soft/libcudart.so")
	make.Dir = root(t)
	if out, err := make.CombinedOutput(); err != nil {
		t.Skipf("needs gcc's sanitizers: %v\n%s", err, out)
	}
	if err := os.Symlink(filepath.Join(lib, "libculvert.so"), filepath.Join(dir, "libculvert.so")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("ASAN_OPTIONS", "detect_leaks=0:handle_segv=0:allow_user_segv_handler=1") // faults are Go's to catch
	// The machine has nvidia-fs: the answers do not depend on who moves the bytes.
	asOnHardware(t, played(t, dir, strings.Fields(flags)...), differential.Since, differential.OnHardware)
	for _, name := range []string{"driver", "runtime", "misuse"} {
		cmd := exec.Command(compile(t, name+".c", strings.Fields(flags)...), filepath.Join(dir, "data"))
		cmd.Env = append(softEnv(), "LD_LIBRARY_PATH="+dir+":"+filepath.Join(dir, "soft"))
		r := finish(t, cmd)
		golden(t, name+".txt", r.stdout)
		if r.status != 0 || r.stderr != "" {
			t.Errorf("%s: status %d\n%s", name, r.status, r.stderr)
		}
	}
}

// TestInstall: make install installs what the packages contain, which is what it takes
// to build and run a program in C and C++ with pkg-config.
func TestInstall(t *testing.T) {
	libraries(t)
	prefix := filepath.Join(t.TempDir(), "usr")
	cmd := exec.Command("make", "-s", "-f", "clib/clib.mk", "install", "PREFIX="+prefix)
	cmd.Dir = root(t)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make install: %v\n%s", err, out)
	}
	cmd = exec.Command("go", "run", "./internal/dist", "check", "internal/dist/files.txt", "amd64", prefix)
	cmd.Dir = root(t)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("the packages contain other files than make install installs: %v\n%s", err, out)
	}
	culvert := filepath.Join(prefix, "bin/culvert")
	said, err := exec.Command(culvert, "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	if words := strings.Fields(string(said)); len(words) < 3 || words[2] != module.Version {
		t.Errorf("culvert --version prints %q, want version %s", said, module.Version)
	}
	if pc := pkgConfig(t, prefix, "--modversion"); !slices.Equal(pc, []string{module.Version}) {
		t.Errorf("culvert.pc has version %v, want %s", pc, module.Version)
	}
	if got := libraryVersion(t, filepath.Join(prefix, "lib/culvert/libculvert.so")); got != module.Version {
		t.Errorf("libculvert.so has version %q, want %s", got, module.Version)
	}
	for _, lang := range [][]string{{"gcc", "-std=c11", "-D_GNU_SOURCE"}, {"g++", "-xc++", "-std=c++17"}} {
		exe := filepath.Join(prefix, "stranger-"+lang[0])
		args := slices.Concat(lang[1:], pkgConfig(t, prefix, "--cflags"), []string{"-o", exe, "programs/rw.c", "-xnone"}, pkgConfig(t, prefix, "--libs"))
		if out, err := exec.Command(lang[0], args...).CombinedOutput(); err != nil {
			t.Fatalf("%s %v: %v\n%s", lang[0], args, err, out)
		}
		run := exec.Command(culvert, "run", "--", exe, "data")
		run.Env = softEnv()
		run.Dir = prefix
		if r := finish(t, run); r.status != 0 || r.stdout != "wrote and read 4194304 bytes\n" {
			t.Errorf("%s, installed: %+v", lang[0], r)
		}
	}
}

// libraryVersion reads the string culvert_version of a library without loading it.
func libraryVersion(t *testing.T, path string) string {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(symbols, func(s elf.Symbol) bool { return s.Name == "culvert_version" })
	if i < 0 {
		t.Fatalf("%s has no symbol culvert_version", path)
	}
	s := symbols[i]
	section := f.Sections[s.Section]
	text := make([]byte, s.Size)
	if _, err := section.ReadAt(text, int64(s.Value-section.Addr)); err != nil {
		t.Fatal(err)
	}
	return strings.TrimRight(string(text), "\x00")
}

// pkgConfig asks pkg-config, or reads the file where there is none.
func pkgConfig(t *testing.T, prefix, what string) []string {
	t.Helper()
	dir := filepath.Join(prefix, "lib/pkgconfig")
	if _, err := exec.LookPath("pkg-config"); err == nil {
		cmd := exec.Command("pkg-config", what, "culvert")
		cmd.Env = append(os.Environ(), "PKG_CONFIG_PATH="+dir)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("pkg-config: %v\n%s", err, out)
		}
		return strings.Fields(string(out))
	}
	text, err := os.ReadFile(filepath.Join(dir, "culvert.pc"))
	if err != nil {
		t.Fatal(err)
	}
	vars := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.Contains(k, ":") {
			vars[k] = expand(v, vars)
		}
		key := map[string]string{"--modversion": "Version: ", "--cflags": "Cflags: ", "--libs": "Libs: "}[what]
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), key); ok {
			return strings.Fields(expand(v, vars))
		}
	}
	t.Fatalf("culvert.pc says nothing about %s:\n%s", what, text)
	return nil
}

func expand(s string, vars map[string]string) string {
	return os.Expand(s, func(k string) string { return vars[k] })
}
