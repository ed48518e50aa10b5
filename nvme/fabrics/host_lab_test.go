package fabrics

import (
	"bytes"
	"context"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/lab/inside"
	"github.com/culvert-io/culvert/rdma/cm"
	"github.com/culvert-io/culvert/rdma/ibverbs"
)

// TestLabKernelHost lets the kernel's NVMe host use a drive of our target, over RDMA on
// software RoCE: blocks, a file system, a bad block, Keep Alive, and
// disconnecting.
func TestLabKernelHost(t *testing.T) {
	inside.Wanted(t, "CULVERT_WANT_FABRICS_HOST")
	at := netip.MustParseAddrPort("10.0.0.1:4420")
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ok(inside.SetAddress("eth0", netip.PrefixFrom(at.Addr(), 24)))
	ok(inside.AddRXE("rxe0", "eth0"))
	p, err := ibverbs.Open()
	ok(err)
	const size = 64 << 20
	d := &disk{b: make([]byte, size)}
	target, err := NewTarget(TargetConfig{Device: openDevice(t, p), NQN: nqn, Model: "test drive", Queues: 2, Drives: []Drive{{d, size >> 9, 9}}, Log: t.Logf})
	ok(err)
	l, err := cm.Listen(at)
	ok(err)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- target.ServeManager(ctx, l) }()
	defer func() {
		cancel()
		ok(<-served)
		ok(l.Close())
	}()
	if err := inside.ConnectNVMe(nqn+":none", at); err == nil {
		t.Error("the kernel connected to a subsystem that does not exist")
	}
	for round := range 2 { // a second host finds what the first one left
		ok(inside.ConnectNVMe(nqn, at, "keep_alive_tmo=10"))
		dev := waitForDisk(t)
		if round == 0 {
			checkBlocks(t, dev, d)
			makeFiles(t, dev)
			waitForLife(t, target)
		}
		checkFiles(t, dev)
		ok(inside.DisconnectNVMe(nqn))
		waitForNone(t, target)
	}
	if _, syncs := d.state(); syncs == 0 {
		t.Error("a file system was unmounted, and no flush came")
	}
}

// waitForLife waits until the kernel has said that it lives.
func waitForLife(t *testing.T, target *Target) {
	t.Helper()
	seen := func() (n int) {
		target.mu.Lock()
		defer target.mu.Unlock()
		for _, c := range target.controllers {
			c.mu.Lock()
			n += c.alive.signs
			c.mu.Unlock()
		}
		return n
	}
	for end := time.Now().Add(time.Minute); seen() == 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the kernel sends no Keep Alive")
		}
	}
}

// waitForDisk waits until the kernel has found the namespace.
func waitForDisk(t *testing.T) string {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		dev, err := inside.RemoteDisk(nqn)
		if err == nil {
			if _, err = os.Stat(dev); err == nil {
				return dev
			}
		}
		if time.Now().After(end) {
			t.Fatalf("no drive appears: %v", err)
		}
	}
}

// waitForNone waits until the target has no controller.
func waitForNone(t *testing.T, target *Target) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		target.mu.Lock()
		n := len(target.controllers)
		target.mu.Unlock()
		if n == 0 {
			return
		}
	}
	t.Error("the kernel disconnected, and the target still has a controller")
}

// checkBlocks writes and reads blocks past the page cache.
func checkBlocks(t *testing.T, dev string, d *disk) {
	t.Helper()
	f, err := os.OpenFile(dev, os.O_RDWR|unix.O_DIRECT, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const n, off = 1 << 20, 5 << 20
	mem, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(mem) }()
	want := noise(n)
	copy(mem, want)
	if _, err := f.WriteAt(mem, off); err != nil {
		t.Fatal(err)
	}
	if got, _ := d.state(); !bytes.Equal(got[off:off+n], want) {
		t.Error("the drive does not have what the kernel wrote")
	}
	clear(mem)
	if _, err := f.ReadAt(mem, off); err != nil || !bytes.Equal(mem, want) {
		t.Errorf("the kernel does not read what it wrote, %v", err)
	}
	d.setBad(off + 512)
	if _, err := f.ReadAt(mem[:4096], off); err == nil {
		t.Error("a bad block was read")
	}
	d.setBad(0)
}

// makeFiles makes a file system with files.
func makeFiles(t *testing.T, dev string) {
	t.Helper()
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", dev).CombinedOutput(); err != nil {
		t.Fatalf("mkfs: %v\n%s", err, out)
	}
	mounted(t, dev, func(dir string) {
		for _, name := range []string{"a", "b"} {
			if err := os.WriteFile(filepath.Join(dir, name), noise(3_000_001), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func checkFiles(t *testing.T, dev string) {
	t.Helper()
	mounted(t, dev, func(dir string) {
		for _, name := range []string{"a", "b"} {
			if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Equal(got, noise(3_000_001)) {
				t.Errorf("%s has other data, %v", name, err)
			}
		}
	})
}

// mounted mounts the file system for a while.
func mounted(t *testing.T, dev string, f func(dir string)) {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount(dev, dir, "ext4", 0, ""); err != nil {
		t.Fatalf("mount %s: %v", dev, err)
	}
	defer func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("unmount %s: %v", dev, err)
		}
	}()
	f(dir)
}
