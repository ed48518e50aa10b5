package cufile_test

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/machine"
)

const exitEnv = "CULVERT_TEST_EXIT"

// A process that ends without closing anything leaves nothing behind: no file,
// no shared memory. The sums of its receipts outlive it on purpose, for a while,
// in a directory of their own.
func TestExitWithoutCloseLeavesNothing(t *testing.T) {
	if file := os.Getenv(exitEnv); file != "" {
		leaveAll(t, file)
	}
	f := newFixture(t, softConfig(), 1<<20)
	tmp, runtime := t.TempDir(), t.TempDir()
	before := list(t, "/dev/shm")
	cmd := exec.Command(os.Args[0], "-test.run=^TestExitWithoutCloseLeavesNothing$")
	cmd.Env = append(os.Environ(), exitEnv+"="+f.path, "TMPDIR="+tmp, "XDG_RUNTIME_DIR="+runtime)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if left := list(t, tmp); len(left) > 0 {
		t.Errorf("left in TMPDIR: %v", left)
	}
	// Sums may be there: of this process, and of those of suites that run beside.
	for _, name := range list(t, "/dev/shm") {
		if !slices.Contains(before, name) && strings.HasPrefix(name, "culvert") && !strings.HasSuffix(name, ".stats") {
			t.Errorf("left in /dev/shm: %s", name)
		}
	}
}

// leaveAll uses all there is and ends the process.
func leaveAll(t *testing.T, name string) {
	m, err := machine.FromSoft(softConfig(), "test")
	if err != nil {
		t.Fatal(err)
	}
	drv, err := cufile.Open(m)
	if err != nil {
		t.Fatal(err)
	}
	dev, err := drv.Device(0)
	if err != nil {
		t.Fatal(err)
	}
	a, err := dev.Alloc(gpu.KindDevice, 1<<20, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dev.Alloc(gpu.KindHost, 1<<20, 0); err != nil {
		t.Fatal(err)
	}
	buf, err := drv.RegisterBuffer(a, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	h, err := drv.Register(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []uint64{4096, 1 << 20} {
		if _, err := h.ReadAt(context.Background(), buf.Span().Slice(0, n), 0); err != nil {
			t.Fatal(err)
		}
	}
	os.Exit(0)
}

func list(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
