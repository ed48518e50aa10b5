package machine

import (
	"errors"
	"strings"
	"testing"

	"github.com/culvert-io/culvert/gpu/cuda"
)

func TestOpenSoft(t *testing.T) {
	t.Setenv("CULVERT_MACHINE", "soft")
	t.Setenv("CULVERT_SOFT", "gpus=2,memory=64M")
	m, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	infos, err := m.GPU.Devices()
	if err != nil || !m.Soft || len(infos) != 2 || m.Why == "" {
		t.Errorf("soft %v, why %q, %d GPUs, %v", m.Soft, m.Why, len(infos), err)
	}
	for range 2 {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
	if d, err := m.GPU.Open(0); err == nil {
		d.Close()
		t.Error("a machine that was closed still has GPUs")
	}
}

// A machine that was asked for by name is that machine or an error.
func TestRealIsNotAFallback(t *testing.T) {
	t.Setenv(cuda.EnvLibrary, "/nowhere/libcuda.so.1")
	if m, err := OpenAs(Real); !errors.Is(err, cuda.ErrNoLibrary) || !strings.Contains(err.Error(), "/nowhere/libcuda.so.1") {
		t.Errorf("real without a driver: %v, %v", m, err)
	}
	m, err := OpenAs(Auto)
	if err != nil || !m.Soft || !strings.Contains(m.Why, "no NVIDIA driver") {
		t.Errorf("auto without a driver: %+v, %v", m, err)
	}
	if _, err := OpenAs("virtual"); err == nil {
		t.Error("a kind that does not exist was opened")
	}
}
