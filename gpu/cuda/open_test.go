//go:build linux && (amd64 || arm64) && !nodl

package cuda_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/gpu/cuda"
	"github.com/culvert-io/culvert/internal/dl"
)

func TestOpenFailures(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "libcuda.so.1")
	for _, tt := range []struct {
		name    string
		library string
		want    error
		says    []string
	}{
		{"no library", missing, cuda.ErrNoLibrary, []string{missing, "cannot open", "install the NVIDIA driver", cuda.EnvLibrary}},
		{"own library", compileFake(t, "MARKER"), cuda.ErrOwnLibrary, []string{"libcuda.so.1", "software GPU", cuda.EnvLibrary}},
		{"no device", compileFake(t, "NO_DEVICE"), gpu.ErrNoDevice, []string{"libcuda.so.1", "cuInit(0)", "CUDA_VISIBLE_DEVICES"}},
		{"count of zero", compileFake(t, "ZERO"), gpu.ErrNoDevice, []string{"cuDeviceGetCount()", "nvidia-smi"}},
		{"missing symbol", compileFake(t, "ANCIENT"), cuda.ErrOldDriver, []string{"cuModuleGetFunction", "CUDA 13.0", "driver 470"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv(cuda.EnvLibrary, tt.library)
			_, err := cuda.Open()
			if !errors.Is(err, tt.want) {
				t.Fatalf("got %v, want %v", err, tt.want)
			}
			for _, s := range tt.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%q does not say %q", err, s)
				}
			}
		})
	}
}

func TestOpenTriesAllNames(t *testing.T) {
	t.Setenv(cuda.EnvLibrary, "")
	_, err := cuda.Open()
	if !errors.Is(err, cuda.ErrNoLibrary) {
		t.Skipf("needs a machine without libcuda: Open says %v", err)
	}
	oe, ok := errors.AsType[*dl.OpenError](err)
	if !ok {
		t.Fatalf("no list of names in %v", err)
	}
	var names []string
	for _, a := range oe.Tried {
		names = append(names, a.Name)
	}
	want := []string{"libcuda.so.1", "/usr/local/nvidia/lib64/libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1", "libcuda.so"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}

func TestOwnLibraryIsUnloaded(t *testing.T) {
	so := compileFake(t, "MARKER")
	t.Setenv(cuda.EnvLibrary, so)
	if _, err := cuda.Open(); !errors.Is(err, cuda.ErrOwnLibrary) {
		t.Fatal(err)
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(maps), so) {
		t.Error("the refused library is still loaded")
	}
}

func TestDriver(t *testing.T) {
	f := openFake(t)
	if v := f.drv.Version(); v != 13000 {
		t.Errorf("version %d", v)
	}
	if n := f.drv.Name(); !strings.HasPrefix(n, "CUDA 13.0 (/") || !strings.HasSuffix(n, "libcuda.so.1)") {
		t.Errorf("name %q", n)
	}
	infos, err := f.drv.Devices()
	if err != nil {
		t.Fatal(err)
	}
	want := []gpu.Info{
		{
			Index: 0, Name: "Fake 0", UUID: gpu.UUID{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
			PCI: "0001:65:03.0", Memory: 141 << 30, Capability: [2]int{9, 0}, Multiprocs: 132, UnifiedAddrs: true,
		},
		{
			Index: 1, Name: "Fake 1", UUID: gpu.UUID{16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31},
			PCI: "0001:66:03.0", Memory: 141 << 30, Capability: [2]int{9, 0}, Multiprocs: 132, UnifiedAddrs: true,
		},
	}
	if diff := cmp.Diff(want, infos); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
	for _, i := range []int{2, -1, 1 << 32} {
		if _, err := f.drv.Open(i); !errors.Is(err, gpu.ErrInvalidDevice) {
			t.Errorf("device %d: %v", i, err)
		}
	}
	f.wantNothingLive()
}

// An old driver lacks functions; what needs them says so, the rest works.
func TestOldDriver(t *testing.T) {
	f := openFake(t, "OLD")
	d := f.device()
	defer d.Close()
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for name, do := range map[string]func() error{
		"cuMemGetAllocationGranularity": func() error { _, err := d.Alloc(gpu.KindVirtual, 1, 0); return err },
		"cuMemRetainAllocationHandle":   func() error { _, err := d.Export(1, 1, gpu.ExportPosixFD); return err },
		"cuMemGetHandleForAddressRange": func() error { _, err := d.Export(1, 1, gpu.ExportDMABuf); return err },
		"cuFlushGPUDirectRDMAWrites":    func() error { return d.FlushWrites(gpu.ScopeOwner) },
		"cuLaunchHostFunc":              func() error { return s.Do(func() { t.Error("called") }) },
	} {
		err := do()
		if !errors.Is(err, gpu.ErrNotSupported) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, says := range []string{name, "CUDA 9.2", "newer driver"} {
			if !strings.Contains(err.Error(), says) {
				t.Errorf("%q does not say %q", err, says)
			}
		}
	}
	// These have another name there, not another meaning.
	got := f.logged(func() {
		if err := s.Write(0x10, 7, 8); err != nil {
			t.Error(err)
		}
	})
	if diff := cmp.Diff([]string{"cuStreamWriteValue64(0x51, 0x10, 7, 0)"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
