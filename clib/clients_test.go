package clib_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

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
			python := filepath.Join(root(t), "bin", client.environment, "bin", "python")
			if _, err := os.Stat(python); err != nil {
				t.Skip("needs the Python environments that make clients installs from PyPI")
			}
			path, err := filepath.Abs(filepath.Join("clients", client.script))
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(filepath.Join(root(t), "bin", "culvert"), "run", "--", python, path)
			cmd.Dir = t.TempDir()
			// Importing torch takes seconds where its bytecode is not kept.
			bytecode := filepath.Join(root(t), "bin", client.environment, "bytecode")
			// fastsafetensors uses 1 GiB to move tensors that are not aligned.
			cmd.Env = append(softEnv(), "CULVERT_SOFT=memory=2G,poison=1", "CULVERT_LIB="+lib, "PYTHONDONTWRITEBYTECODE=", "PYTHONPYCACHEPREFIX="+bytecode)
			r := finish(t, cmd)
			diff(t, client.script, r.stdout, client.want)
			if r.status != 0 {
				t.Errorf("status %d\n%s", r.status, r.stderr)
			}
		})
	}
}
