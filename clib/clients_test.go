package clib_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// nixlWorks is what nixl_client.py prints, on our libcufile and on NVIDIA's. The plugin GDS
// takes an entry of a batch that moved nothing for done.
const nixlWorks = `GDS behind the end of the file: DONE
GDS: works
GDS_MT behind the end of the file: failed
GDS_MT: works
POSIX behind the end of the file: failed
POSIX: works
`

// TestClients runs third-party programs.
func TestClients(t *testing.T) {
	lib := libraries(t)
	for _, client := range []struct{ script, environment, want string }{
		{"cuda_python.py", "clients", `driver: works
cuFile version 1
refused: HANDLE_ALREADY_REGISTERED
refused: MEMORY_ALREADY_REGISTERED
refused: INVALID_MAPPING_RANGE
threads: work
refused: MEMORY_NOT_REGISTERED
refused: HANDLE_NOT_REGISTERED
cuFile: works
refused: DRIVER_ALREADY_OPEN
parameters, statistics: work
batch: works
forked child: refused
`},
		{"kvikio_client.py", "clients", `host memory: works
device memory: works
parallel reads: work
unaligned write: works
registered buffer: works
stream: works
`},
		{"nixl_client.py", "clients", nixlWorks},
		{"torch_gds.py", "python-torch", `torch 2.15.0+cu132 NVIDIA H200 (software)
DataLoader workers forked before the first call: ok
memory: ok
streams, events, pinned memory: ok
a kernel: ok
save, load, compare, unregistered: ok
save, load, compare, registered: ok
eight threads: ok
DataLoader workers forked after: ok
a spawned process: ok
core: libculvert.so
all as expected
`},
		{"fastsafetensors_client.py", "python-torch", `load: works
`},
	} {
		t.Run(client.script, func(t *testing.T) {
			cmd := clientCommand(t, lib, client.environment, client.script)
			cmd.Dir = t.TempDir()
			r := finish(t, cmd)
			diff(t, client.script, r.stdout, client.want)
			if r.status != 0 {
				t.Errorf("status %d\n%s", r.status, r.stderr)
			}
		})
	}
}

// clientCommand returns "culvert run", with flags, of a third-party program.
func clientCommand(t *testing.T, lib, environment, script string, flags ...string) *exec.Cmd {
	t.Helper()
	python := filepath.Join(clientEnvironment(t, environment), "bin", "python")
	path, err := filepath.Abs(filepath.Join("clients", script))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(root(t), "bin", "culvert"), append(append([]string{"run"}, flags...), "--", python, path)...)
	// Importing torch takes seconds where its bytecode is not kept.
	bytecode := filepath.Join(root(t), "bin", environment, "bytecode")
	// fastsafetensors uses 1 GiB to move tensors that are not aligned.
	cmd.Env = append(softEnv(), "CULVERT_SOFT=memory=2G,poison=1", "CULVERT_LIB="+lib, "PYTHONDONTWRITEBYTECODE=", "PYTHONPYCACHEPREFIX="+bytecode)
	return cmd
}

// clientEnvironment returns the directory of a Python environment.
func clientEnvironment(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join(root(t), "bin", name)
	if _, err := os.Stat(filepath.Join(dir, "bin", "python")); err != nil {
		t.Skip("needs the Python environments that make clients installs from PyPI")
	}
	return dir
}

// TestObserveNVIDIA: NIXL's plugins do the same on NVIDIA's libcufile as on ours, and
// "culvert run --observe" reports their transfers. The library works in its compatibility
// mode on the software CUDA, and on tmpfs without udev.
func TestObserveNVIDIA(t *testing.T) {
	lib := libraries(t)
	theirs := filepath.Join(clientEnvironment(t, "python-torch"), "lib/python3*/site-packages/nvidia/cu13/lib/libcufile.so.0")
	found, err := filepath.Glob(theirs)
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: found %v, %v", theirs, found, err)
	}
	dir, err := os.MkdirTemp("/dev/shm", "culvert-observe-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	observe := func(preload string) outcome {
		cmd := clientCommand(t, lib, "clients", "nixl_client.py", "--observe", "--libcufile", found[0], "--report", "report.txt")
		cmd.Dir = dir
		cmd.Env = append(cmd.Env, "CUFILE_LOGFILE_PATH="+filepath.Join(dir, "cufile.log"), "LD_PRELOAD="+preload)
		return finish(t, cmd)
	}
	preload := ""
	if _, err := os.Stat("/proc/modules"); err != nil {
		if r := observe(""); r.status == 0 || !strings.Contains(r.stderr, "this kernel has no /proc/modules") {
			t.Errorf("without /proc/modules: status %d\n%s", r.status, r.stderr)
		}
		preload = compile(t, "modules.c", "-shared", "-fPIC")
	}
	r := observe(preload)
	diff(t, "on NVIDIA's libcufile", r.stdout, nixlWorks)
	report, err := os.ReadFile(filepath.Join(dir, "report.txt"))
	if err != nil {
		t.Fatalf("%v\n%s", err, r.stderr)
	}
	for _, want := range []string{
		"status 0, engine nvidia, 102 cuFile calls by 1 process",
		"/GDS.bin\n  26 asynchronous reads of 64.0 KiB, 1.6 MiB\n",
		"/GDS_MT.bin\n  26 reads, 1.6 MiB, 1 short; ",
		"\n    sizes: 26 from 64.0 KiB\n",
		"routes compat 3.1 MiB (inferred); 0 % direct, 3.1 MiB through host memory\n  declined nvidia-fs: not loaded (reasons below)\n",
	} {
		if !strings.Contains(string(report), want) {
			t.Errorf("the report lacks %q:\n%s", want, report)
		}
	}
}
