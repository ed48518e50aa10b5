package clib_test

import (
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/culvert-io/culvert/internal/stats"
	"github.com/culvert-io/culvert/route"
)

// withoutNVFS makes small reads use the route bar, as on hardware: the emulated
// nvidia-fs would come first.
func withoutNVFS(t testing.TB) { t.Setenv("CULVERT_NVFS", "0") }

// shimSource is the C half of leases, embedded so that "go test -overlay" can
// replace it.
//
//go:embed shim/lease.c shim/cufile_local.c
var shimSource embed.FS

// A build is the libraries with flags for the programs that use them.
type build struct {
	lib   string
	flags []string
}

// leaseBuilds are the libraries as built by make, and with a libcufile of
// shimSource, with sanitizers if gcc has them.
func leaseBuilds(t *testing.T) map[string]build {
	t.Helper()
	withoutNVFS(t)
	t.Setenv("ASAN_OPTIONS", "detect_leaks=0:handle_segv=0:allow_user_segv_handler=1") // faults are Go's to catch
	shipped := libraries(t)
	sanitizedOnce.Do(func() { sanitized, sanitizedErr = buildSanitized(root(t), shipped) })
	if sanitizedErr != nil {
		t.Fatal(sanitizedErr)
	}
	return map[string]build{"shipped": {lib: shipped}, "sanitized": sanitized}
}

var (
	sanitizedOnce sync.Once
	sanitized     build
	sanitizedErr  error
)

func buildSanitized(root, shipped string) (build, error) {
	b := build{filepath.Join(root, "bin", "sanitized"), []string{"-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"}}
	err := errors.Join(os.RemoveAll(b.lib), os.MkdirAll(b.lib, 0o755))
	for _, name := range []string{"libculvert.so", "soft"} {
		err = errors.Join(err, os.Symlink(filepath.Join(shipped, name), filepath.Join(b.lib, name)))
	}
	args := []string{
		"-std=gnu11", "-O1", "-g", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread", "-Ishim", "-Iinclude",
		"-Wl,-z,nodelete", "-Wl,-soname,libcufile.so.0", "-o", filepath.Join(b.lib, "libcufile.so.0"), "shim/cufile.c", "shim/gocore.c",
	}
	for _, name := range []string{"lease.c", "cufile_local.c"} {
		source, werr := writeShim(b.lib, name)
		err = errors.Join(err, werr)
		args = append(args, source)
	}
	if err != nil {
		return b, err
	}
	args = append(args, "-ldl")
	if exec.Command("gcc", slices.Concat(b.flags, args)...).Run() == nil {
		return b, nil
	}
	b.flags = nil
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		return b, fmt.Errorf("gcc %v: %w\n%s", args, err, out)
	}
	return b, nil
}

// writeShim puts a file of shimSource into a directory.
func writeShim(dir, name string) (string, error) {
	text, err := shimSource.ReadFile("shim/" + name)
	path := filepath.Join(dir, name)
	return path, errors.Join(err, os.WriteFile(path, text, 0o600))
}

// TestLease: small reads do not enter Go, have the same results, and never use a
// lease that has ended.
func TestLease(t *testing.T) {
	for name, b := range leaseBuilds(t) {
		r := run(t, b.lib, compile(t, "lease.c", b.flags...), t.TempDir())
		golden(t, "lease.txt", r.stdout)
		if r.status != 0 || r.stderr != "" {
			t.Errorf("%s: status %d, stderr %q", name, r.status, r.stderr)
		}
	}
}

func TestLeaseStress(t *testing.T) {
	changes := "300"
	if testing.Short() {
		changes = "50"
	}
	for name, b := range leaseBuilds(t) {
		r := run(t, b.lib, compile(t, "leases.c", b.flags...), t.TempDir(), "32", changes, "1")
		diff(t, name, r.stdout, "0 failures, many by leases, bytes compared, changes\n")
		t.Log(name, strings.TrimSpace(r.stderr))
	}
}

// TestLeaseProtocol: a revoker sees every user that has entered, and later users
// see that the lease is revoked.
func TestLeaseProtocol(t *testing.T) {
	libraries(t) // or there is no gcc
	dir := t.TempDir()
	source, err := writeShim(dir, "lease.c")
	if err != nil {
		t.Fatal(err)
	}
	exe := filepath.Join(dir, "protocol")
	args := []string{"-std=gnu11", "-O1", "-fno-inline", "-finstrument-functions", "-Wall", "-Wextra", "-Werror", "-pthread", "-Ishim", "-o", exe, "testdata/protocol.c", source}
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("gcc %v: %v\n%s", args, err, out)
	}
	r := finish(t, exec.Command(exe, filepath.Join(dir, "data"), "5000"))
	diff(t, "protocol", r.stdout, "0 broken, many reads, counted 1\n")
	t.Log(strings.TrimSpace(r.stderr))
}

// TestLeaseOrder: a read by a lease waits for the default stream.
func TestLeaseOrder(t *testing.T) {
	for name, b := range leaseBuilds(t) {
		dir := t.TempDir()
		for _, file := range []string{"libcufile.so.0", "libculvert.so", "soft"} {
			if err := os.Symlink(filepath.Join(b.lib, file), filepath.Join(dir, file)); err != nil {
				t.Fatal(err)
			}
		}
		if out, err := exec.Command("gcc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", filepath.Join(dir, "libcuda.so.1"), "testdata/fakecuda.c").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		r := run(t, dir, compile(t, "ordered.c", b.flags...), filepath.Join(dir, "data"))
		out := strings.Split(r.stdout, "wait: memory is old\n")
		if len(out) < 2 || strings.Join(out, "") != `idle: by leases 1, queries 100, waits 0
busy: by a lease, waits 1, memory is new
no context: by leases 1, queries 0
context: kept, set 0 times
` || r.stderr != "" {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// TestLeaseCounts: the statistics of the process count every byte read by leases.
func TestLeaseCounts(t *testing.T) {
	for name, b := range leaseBuilds(t) {
		t.Run(name, func(t *testing.T) { leaseCounts(t, b) })
	}
}

func leaseCounts(t *testing.T, b build) {
	t.Helper()
	data := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(data, make([]byte, 8192), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(compile(t, "cost.c", b.flags...), data)
	cmd.Env = append(softEnv(), "LD_LIBRARY_PATH="+b.lib+":"+filepath.Join(b.lib, "soft"))
	r := finish(t, cmd)
	_, by, _ := strings.Cut(r.stdout, "ns, read ")
	_, by, _ = strings.Cut(by, "ns, ")
	var leased, all int64
	if f := strings.Fields(by); len(f) != 5 {
		t.Fatalf("%+v", r)
	} else {
		leased, _ = strconv.ParseInt(f[0], 10, 64)
		all, _ = strconv.ParseInt(f[2], 10, 64)
	}
	if leased < all/2 || leased >= all {
		t.Errorf("%d of %d reads by leases, want most, and not the first", leased, all)
	}
	s, err := stats.Read(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	ops, bytes := s.Totals.Ops[0][route.Bar], s.Totals.Bytes[0][route.Bar]
	if ops != all || bytes != 4096*all || s.Totals.Time <= 0 || len(s.Files) != 1 || s.Files[0].Name != data || s.Files[0].Totals.Ops[0][route.Bar] != all {
		t.Errorf("%d reads and %d bytes in %v are counted, want %d reads: %+v", ops, bytes, s.Totals.Time, all, s.Files)
	}
}
