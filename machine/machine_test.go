package machine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/gpu/cuda"
	"github.com/culvert-io/culvert/route"
	"github.com/culvert-io/culvert/soft"
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
	if e, ok := errors.AsType[*route.RequireError](m.Require(route.Host)); !ok || !e.Software || m.Require(route.None) != nil || m.Kind() != route.SoftwareMachine {
		t.Errorf("a route is required where nothing asked for software: %v", e)
	}
	t.Setenv("CULVERT_SOFT", "gpus=2")
	if err := m.Require(route.Host); err == nil || !strings.Contains(err.Error(), "CULVERT_SOFT describes the software machine but does not ask for it") || !strings.Contains(err.Error(), "set CULVERT_MACHINE=soft") {
		t.Errorf("with CULVERT_SOFT alone: %v", err)
	}
	if m.Accept(); m.Require(route.NVFS) != nil {
		t.Error("a software machine was accepted, and has no routes")
	}
	if m, err := OpenAs(Soft); err != nil || m.Automatic || m.Require(route.NVFS) != nil {
		t.Errorf("a software machine that was asked for: %+v, %v", m, err)
	}
	if _, err := OpenAs("virtual"); err == nil {
		t.Error("a kind that does not exist was opened")
	}
}

// TestCloseGivesTheAddressesBack: a software machine reserves more addresses than
// a process has for some hundred of them.
func TestCloseGivesTheAddressesBack(t *testing.T) {
	open := func() *Machine {
		m, err := FromSoft(soft.Config{}, "test")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.GPU.Open(0); err != nil {
			t.Fatal(err)
		}
		return m
	}
	before := addressSpace(t)
	for range 3 {
		m := open()
		reserved := addressSpace(t) - before
		if err := errors.Join(m.Close(), m.Close()); err != nil {
			t.Fatal(err)
		}
		if left := addressSpace(t) - before; 2*left > reserved {
			t.Fatalf("%d bytes of addresses were reserved, and %d are left", reserved, left)
		}
	}
	if err := (&Machine{}).Close(); err != nil {
		t.Error(err)
	}
}

func addressSpace(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	var pages int64
	if _, err := fmt.Sscan(string(text), &pages); err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

// TestBlameIsTheCallers: of an error no line of the machine itself is to blame.
func TestBlameIsTheCallers(t *testing.T) {
	m, err := FromSoft(soft.Config{Memory: 64 << 20}, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	_, err = m.GPU.Open(7)
	if e, ok := errors.AsType[*gpu.Error](err); !ok || filepath.Base(e.File) != "machine_test.go" {
		t.Errorf("%v", err)
	}
}

// A process that outlives its "culvert run", whose directory is gone, works with its faults.
func TestFaultsAfterTheRun(t *testing.T) {
	t.Setenv("CULVERT_MACHINE", "soft")
	t.Setenv("CULVERT_FAULT", "short=4K")
	t.Setenv("CULVERT_RUN_DIR", filepath.Join(t.TempDir(), "gone"))
	m, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if n, err := m.Faults.Before("read", "/data", 1<<20); n != 4096 || err != nil {
		t.Errorf("limit %d: %v", n, err)
	}
}
