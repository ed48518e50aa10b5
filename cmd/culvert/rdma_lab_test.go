package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/culvert-io/culvert/lab/inside"
)

// TestLabRDMA reads and writes files over the kernel's software RoCE, by the commands.
func TestLabRDMA(t *testing.T) {
	inside.Wanted(t, "CULVERT_WANT_RDMA")
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ok(inside.SetAddress("eth0", netip.MustParsePrefix("10.0.0.1/24")))
	ok(inside.AddRXE("rxe0", "eth0"))
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	want := make([]byte, 3_000_007)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range want {
		want[i] = byte(r.Uint32())
	}
	ok(os.Mkdir(file("d"), 0o700))
	ok(os.WriteFile(file("d/data"), want, 0o600))
	ok(os.WriteFile(file("token"), []byte("a secret of both ends"), 0o600))
	culvert := func(args ...string) *exec.Cmd {
		c := exec.CommandContext(t.Context(), "culvert", args...)
		c.Env = append(os.Environ(), "CULVERT_MACHINE=soft", "CULVERT_SOFT=memory=64M", "CULVERT_RDMA_PROVIDER=ibverbs")
		return c
	}
	var served bytes.Buffer
	serve := culvert("rdma", "serve", file("d"), "--writable", "-a", "10.0.0.1", "-p", "0", "--address-file", file("addr"), "--token-file", file("token"))
	serve.Stdout, serve.Stderr = &served, &served
	ok(serve.Start())
	defer func() {
		_ = serve.Process.Kill()
		_ = serve.Wait()
		if t.Failed() {
			t.Logf("the server said:\n%s", served.String())
		}
	}()
	addr := waitForFile(t, file("addr"))
	run := func(args ...string) string {
		t.Helper()
		out, err := culvert(append(args, "--token-file", file("token"))...).CombinedOutput()
		if err != nil {
			t.Fatalf("culvert %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	out := run("rdma", "read", "-v", addr, "d/data", file("out"), "--verify")
	// Software RoCE reaches no GPU memory. The kernel's errors, EFAULT and EOPNOTSUPP, are
	// the reasons.
	for _, text := range []string{
		"provider=ibverbs", "rdma:registration", "peer memory: the address is not mapped", "the adapter's driver cannot import a dma-buf",
	} {
		if !strings.Contains(out, text) {
			t.Errorf("no %q in\n%s", text, out)
		}
	}
	run("rdma", "write", addr, "d/copy", file("out"), "--verify")
	for _, name := range []string{"out", "d/copy"} {
		if got, err := os.ReadFile(file(name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s has %d bytes that are not those of the file, %v", name, len(got), err)
		}
	}
	c := culvert("rdma", "read", addr, "d/data", file("other"), "-a", "127.0.0.1", "--token-file", file("token"))
	if b, err := c.CombinedOutput(); err == nil || !strings.Contains(string(b), "10.0.0.1 (rxe0)") {
		t.Errorf("an address without an adapter: %v\n%s", err, b)
	}
}

// waitForFile waits until a file has contents.
func waitForFile(t *testing.T, name string) string {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		b, err := os.ReadFile(name)
		if err == nil && len(b) > 0 {
			return strings.TrimSpace(string(b))
		}
		if time.Now().After(end) {
			t.Fatal(fmt.Errorf("the server did not start: %w", err))
		}
	}
}
