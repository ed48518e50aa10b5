package soft_test

import (
	"bytes"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/dev/nvfs"
	"github.com/culvert-io/culvert/soft"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// files makes a file of random bytes and opens it for nvidia-fs.
func files(t *testing.T, n int) (*nvfs.File, []byte, string) {
	t.Helper()
	data := make([]byte, n)
	rand.NewChaCha8([32]byte{'n'}).Read(data)
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_DIRECT, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	nf, err := nvfs.NewFile(path, int(f.Fd()), -1)
	if err != nil {
		t.Fatal(err)
	}
	return nf, data, path
}

func register(t *testing.T, m *soft.Machine, d gpu.Device, a gpu.Addr) (*nvfs.Client, *nvfs.Buffer) {
	t.Helper()
	c, err := nvfs.Open(dev.Of(m))
	if err != nil {
		t.Fatal(err)
	}
	b, err := c.Register(nvfs.Config{Addr: uint64(a), Size: 1 << 20, Zero: func(addr, n uint64) error {
		return d.Fill(gpu.Addr(addr), 0, 1, n)
	}})
	if err != nil {
		t.Fatal(err)
	}
	return c, b
}

func procModules(t *testing.T, m *soft.Machine) string {
	t.Helper()
	text, err := fs.ReadFile(dev.Of(m).FS(), "proc/driver/nvidia-fs/modules")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The drive moves bytes between files and the memory of any GPU of the machine,
// and none of them through host memory. The storage modules register with the
// first open and go with the last close.
func TestNvidiaFSMovesFiles(t *testing.T) {
	for name, cfg := range map[string]soft.Config{
		"H200":      {},
		"scattered": {Scatter: true, Seed: 3},
		"heap":      {Heap: true},
		"two GPUs":  {GPUs: 2},
	} {
		t.Run(name, func(t *testing.T) {
			m, d, a := build(t, cfg)
			if got := procModules(t, m); got != "wekafsio: 1\n" {
				t.Errorf("before the first open: %q", got)
			}
			c, b := register(t, m, d, a)
			if got := procModules(t, m); got != "nvme: 1.0\nnvme_rdma: 1.0\nwekafsio: 1\n" {
				t.Errorf("after it: %q", got)
			}
			f, data, path := files(t, 1<<20)
			if n, err := b.Read(f, 0, 1<<20, 0); n != 1<<20 || err != nil {
				t.Fatal(n, err)
			}
			got := make([]byte, 1<<20)
			if err := d.CopyOut(got, a); err != nil || !bytes.Equal(got, data) {
				t.Errorf("the GPU has other bytes, %v", err)
			}
			if n, err := b.Write(f, 4096, 64<<10, 512<<10); n != 64<<10 || err != nil {
				t.Fatal(n, err)
			}
			copy(data[4096:], data[512<<10:576<<10])
			if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, data) {
				t.Errorf("the file has other bytes, %v", err)
			}
			checkTraffic(t, m, 1<<20, 64<<10)
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			if got := procModules(t, m); got != "wekafsio: 1\n" {
				t.Errorf("after the last close: %q", got)
			}
			down(t, m, d, a)
		})
	}
}

// checkTraffic holds the fabric's counters against what was read and written: the
// drive's link has carried the data, and host memory has seen queues alone.
func checkTraffic(t *testing.T, m *soft.Machine, read, written uint64) {
	t.Helper()
	st, port := m.StorageStats(), m.StoragePort()
	if st.Out != read || st.In != written {
		t.Errorf("the drive moved %d and %d bytes, want %d and %d", st.Out, st.In, read, written)
	}
	if up := port.Traffic().Up; up != read+st.Posted {
		t.Errorf("%d bytes went up the drive's link, want %d and completions", up, read)
	}
	host := port.Fabric().HostTraffic()
	if host.Written != st.Posted || host.Read != st.Fetched+st.Listed {
		t.Errorf("host memory has seen %+v, the queues are %+v", host, st)
	}
}

// A drive that is pulled out is an error and no hang, and so is every request
// after it.
func TestNvidiaFSDriveVanishes(t *testing.T) {
	m, d, a := build(t, soft.Config{})
	c, b := register(t, m, d, a)
	f, _, _ := files(t, 1<<20)
	if _, err := b.Read(f, 0, 1<<20, 0); err != nil {
		t.Fatal(err)
	}
	m.StoragePort().Unplug()
	for range 2 {
		if n, err := b.Read(f, 0, 1<<20, 0); n != 0 || !errors.Is(err, syscall.EIO) {
			t.Errorf("read: %d, %v", n, err)
		}
		if n, err := b.Write(f, 0, 1<<20, 0); n != 0 || !errors.Is(err, syscall.EIO) {
			t.Errorf("write: %d, %v", n, err)
		}
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	down(t, m, d, a)
}

// The file system's own error reaches the program: a full one is no broken drive.
func TestNvidiaFSFull(t *testing.T) {
	m, d, a := build(t, soft.Config{})
	c, b := register(t, m, d, a)
	f, data, path := files(t, 64<<10)
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	limit := was
	limit.Cur = 128 << 10
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	n, err := b.Write(f, 128<<10, 64<<10, 0)
	if rerr := unix.Setrlimit(unix.RLIMIT_FSIZE, &was); rerr != nil {
		t.Fatal(rerr)
	}
	if n != 0 || !errors.Is(err, syscall.EFBIG) {
		t.Errorf("a write past the limit: %d, %v", n, err)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, data) {
		t.Errorf("the file has changed, %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	down(t, m, d, a)
}

// The machine goes down under a client that has not closed its node, after I/O.
func TestNvidiaFSCloseUnderClient(t *testing.T) {
	m, d, a := build(t, soft.Config{})
	_, b := register(t, m, d, a)
	f, _, _ := files(t, 64<<10)
	if _, err := b.Read(f, 0, 64<<10, 0); err != nil {
		t.Fatal(err)
	}
	down(t, m, d, a)
	if n, err := b.Read(f, 0, 64<<10, 0); n != 0 || err == nil {
		t.Errorf("a read after the machine's end: %d, %v", n, err)
	} else if strings.Contains(err.Error(), "panic") {
		t.Error(err)
	}
}
