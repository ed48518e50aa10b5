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
	python := filepath.Join(root(t), "bin", "clients", "bin", "python")
	if _, err := os.Stat(python); err != nil {
		t.Skip("needs the Python environment that make clients installs from PyPI")
	}
	for script, want := range map[string]string{
		"cuda_python.py": `driver: works
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
`,
		"kvikio_client.py": `host memory: works
device memory: works
parallel reads: work
unaligned write: works
registered buffer: works
stream: works
`,
	} {
		t.Run(script, func(t *testing.T) {
			path, err := filepath.Abs(filepath.Join("clients", script))
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(filepath.Join(root(t), "bin", "culvert"), "run", "--", python, path)
			cmd.Dir = t.TempDir()
			cmd.Env = append(softEnv(), "CULVERT_LIB="+lib)
			r := finish(t, cmd)
			diff(t, script, r.stdout, want)
			if r.status != 0 {
				t.Errorf("status %d\n%s", r.status, r.stderr)
			}
		})
	}
}
