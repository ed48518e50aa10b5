package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The Python package saves to a store and loads from it, with the credentials of the
// environment. The C libraries must have been built, as "make store-test" does.
func TestPython(t *testing.T) {
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	python := filepath.Join(root, "bin", "python", "bin", "python")
	if _, err := os.Stat(python); err != nil {
		t.Skip("no bin/python (fix: make store-test)")
	}
	const program = `
import os, numpy, culvert, culvert.numpy
url = os.environ["URL"]
tensor = numpy.arange(10 << 20, dtype=numpy.uint32)
culvert.numpy.save_file({"w": tensor}, url)
assert (culvert.load_file(url, device="cuda:0", verify=True)["w"].numpy() == tensor).all()
assert (culvert.numpy.load_file(url)["w"] == tensor).all()
try:
    culvert.load_file(url + ".none")
except FileNotFoundError:
    print("done")
`
	each(t, func(t *testing.T, s *server) {
		culvert := s.command(t, nil, "URL=s3://"+bucket+"/python.safetensors", "PYTHONPATH="+filepath.Join(root, "python"),
			"PYTHONDONTWRITEBYTECODE=1", "CULVERT_MACHINE=soft")
		cmd := exec.CommandContext(t.Context(), python, "-c", program)
		cmd.Env = culvert.Env
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != "done\n" {
			t.Errorf("%v\n%s", err, out)
		}
	})
}
