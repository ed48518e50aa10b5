//go:build linux && (amd64 || arm64) && !nodl

package kernels_test

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/gpu/kernels"
	"github.com/culvert-io/culvert/gpu/kernels/kerneltest"
	"github.com/culvert-io/culvert/internal/dl"
)

// emulator compiles the CUDA half for the CPU.
func emulator(t *testing.T) dl.Func {
	t.Helper()
	cxx, err := exec.LookPath("g++")
	if err != nil {
		t.Skip("needs g++ to compile the CUDA half for the CPU")
	}
	so := filepath.Join(t.TempDir(), "emulate.so")
	cmd := exec.Command(cxx, "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-Wno-unknown-pragmas", "-o", so, "testdata/emulate.cc")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	lib, err := dl.Open(so)
	if err != nil {
		t.Fatal(err)
	}
	f, err := lib.Sym("emulate")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// Both halves of every pair change memory in the same way, whatever the launch
// shape and however the memory is segmented.
func TestHalvesAgree(t *testing.T) {
	emulate := emulator(t)
	mem := make([]byte, kerneltest.Size+16)
	mem = mem[-addressOf(mem)&15:][:kerneltest.Size]
	for _, name := range kernels.Names() {
		for seed := range uint64(200) {
			c := kerneltest.New(name, gpu.HostAddr(mem), seed)
			if len(c.Args) == 0 {
				t.Fatalf("no case for %s", name)
			}
			copy(mem, c.Memory)
			shape := []uint32{c.Grid.X, c.Grid.Y, c.Grid.Z, c.Block.X, c.Block.Y, c.Block.Z}
			if emulate.Call(addressOf(append([]byte(name), 0)), addressOf(shape), addressOf(c.Args)) == 0 {
				t.Fatalf("no CUDA half of %s", name)
			}
			if diff := c.Diff(mem); diff != "" {
				t.Fatalf("seed %d: %s", seed, diff)
			}
		}
	}
}
