package gpu_test

import (
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/culvert-io/culvert/gpu"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
)

// TestStrayAccessKillsTheProcess has a child read device memory as if it were
// the host's.
func TestStrayAccessKillsTheProcess(t *testing.T) {
	if os.Getenv("CULVERT_STRAY_ACCESS") != "" {
		_, x := device(t, softgpu.Config{})
		a := alloc(t, x, gpu.KindDevice, 4096)
		t.Logf("read %d", gpu.HostBytes(a, 1)[0])
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), "CULVERT_STRAY_ACCESS=1")
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Fatalf("the CPU read device memory:\n%s", out)
	}
	if !strings.Contains(string(out), "SIGSEGV") {
		t.Fatalf("the child died (%v), but not of SIGSEGV:\n%s", err, out)
	}
}

// TestDeviceAddressesFaultAllOver touches the borders of allocations of all
// sizes, and freed ones.
func TestDeviceAddressesFaultAllOver(t *testing.T) {
	_, x := device(t, softgpu.Config{Scatter: true})
	for _, n := range []uint64{1, 4096, 1 << 20, 5 << 20} {
		a := alloc(t, x, gpu.KindDevice, n)
		for _, at := range []gpu.Addr{a, a + gpu.Addr(n) - 1, a + gpu.Addr(n)} {
			if !faults(at) {
				t.Errorf("the CPU can read %v, allocation of %d bytes at %v", at, n, a)
			}
		}
		free(t, x, a)
		if !faults(a) {
			t.Errorf("the CPU can read freed memory at %v", a)
		}
	}
}

func faults(a gpu.Addr) (fault bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { fault = recover() != nil }()
	return gpu.HostBytes(a, 1)[0] > 0
}
