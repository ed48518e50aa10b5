package nvmerdma_test

import (
	"bytes"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
	client "github.com/culvert-io/culvert/internal/dev/nvfs"
	"github.com/culvert-io/culvert/soft"
	"github.com/culvert-io/culvert/soft/kernel/nvfs/nvmerdma"
	"github.com/culvert-io/culvert/soft/pcie/syncpoint"
	"github.com/culvert-io/culvert/softtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const size = 1 << 20

// A rig is a machine whose files are on a remote drive, a file of it, and a buffer that is
// bound to nvidia-fs.
type rig struct {
	*soft.Machine
	t      *testing.T
	remote *nvmerdma.Module
	points *syncpoint.Points
	gpu    gpu.Device
	client *client.Client
	addr   gpu.Addr // size bytes
	buf    *client.Buffer
	file   *client.File
	path   string
	data   []byte // of the file
}

func newRig(t *testing.T, cfg soft.Config) *rig {
	t.Helper()
	r := &rig{t: t, points: new(syncpoint.Points), data: make([]byte, size)}
	cfg.Drive, cfg.Points, cfg.Memory, cfg.Heap = "nvme-rdma", r.points, 16<<20, cfg.Heap || raceEnabled
	r.Machine = softtest.Of(t, softtest.New(t, cfg))
	r.remote = r.Remote()
	var err error
	r.gpu, err = r.GPU.Open(0)
	r.check(err)
	r.addr, err = r.gpu.Alloc(gpu.KindDevice, size, 0)
	r.check(err)
	r.client, err = client.Open(dev.Of(r.Machine))
	r.check(err)
	r.buf, err = r.client.Register(client.Config{Addr: uint64(r.addr), Size: size, Zero: func(addr, n uint64) error {
		return r.gpu.Fill(gpu.Addr(addr), 0, 1, n)
	}})
	r.check(err)
	rand.NewChaCha8([32]byte{'r'}).Read(r.data)
	r.path = filepath.Join(t.TempDir(), "file")
	r.check(os.WriteFile(r.path, r.data, 0o600))
	f, err := os.OpenFile(r.path, os.O_RDWR|unix.O_DIRECT, 0)
	if err != nil {
		t.Skipf("needs a file system with O_DIRECT: %v", err)
	}
	r.file, err = client.NewFile(r.path, int(f.Fd()), -1)
	r.check(err)
	t.Cleanup(func() {
		r.points.Hook(nil)
		r.check(errors.Join(f.Close(), r.client.Close()))
		if r.addr != 0 {
			r.check(r.gpu.Free(r.addr))
		}
		r.check(r.gpu.Close())
	})
	return r
}

func (r *rig) check(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) fill(b byte) { r.check(r.gpu.Fill(r.addr, uint32(b), 1, size)) }

func (r *rig) memory() []byte {
	r.t.Helper()
	b := make([]byte, size)
	r.check(r.gpu.CopyOut(b, r.addr))
	return b
}

// contents is what the file has.
func (r *rig) contents() []byte {
	r.t.Helper()
	got, err := os.ReadFile(r.path)
	r.check(err)
	return got
}

// restore makes the file what it was.
func (r *rig) restore() {
	r.t.Helper()
	f, err := os.OpenFile(r.path, os.O_WRONLY, 0)
	r.check(err)
	_, err = f.WriteAt(r.data, 0)
	r.check(errors.Join(err, f.Close()))
}

func (r *rig) fileHolds(want []byte) {
	r.t.Helper()
	if !bytes.Equal(r.contents(), want) {
		r.t.Error("the file has other bytes")
	}
}

// read reads the whole file and compares.
func (r *rig) read() {
	r.t.Helper()
	if n, err := r.buf.Read(r.file, 0, size, 0); n != size || err != nil {
		r.t.Fatalf("read: %d bytes, %v", n, err)
	}
	if !bytes.Equal(r.memory(), r.data) {
		r.t.Fatal("the GPU has other bytes")
	}
}

// The target moves bytes between the file and the memory of any GPU, through the adapter.
// Host memory sees commands and completions alone.
func TestMovesFiles(t *testing.T) {
	for name, cfg := range map[string]soft.Config{
		"H200":      {},
		"scattered": {Scatter: true, Seed: 3},
		"heap":      {Heap: true},
		"two GPUs":  {GPUs: 2},
		"far NIC":   {NICs: []soft.NIC{{GPU: -1, Name: "far"}, {}}},
		"callbacks": {Callback: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, cfg)
			r.fill(0xee)
			r.read()
			before, link := r.Fabric().HostTraffic(), r.StoragePort().Traffic()
			r.fill(0xee)
			r.read()
			if n, err := r.buf.Write(r.file, 4096, 256<<10, 512<<10); n != 256<<10 || err != nil {
				t.Fatal(n, err)
			}
			copy(r.data[4096:], bytes.Clone(r.data[512<<10:768<<10]))
			r.fileHolds(r.data)
			// The adapter may count what it has sent after the answer.
			for r.StoragePort().Traffic().Down-link.Down < 256<<10 {
				runtime.Gosched()
			}
			// Commands and completions are less than a block.
			host, now := r.Fabric().HostTraffic(), r.StoragePort().Traffic()
			if host.Read-before.Read >= 4096 || host.Written-before.Written >= 4096 {
				t.Errorf("host memory has seen %+v after %+v", host, before)
			}
			if up, down := now.Up-link.Up, now.Down-link.Down; up < size || up >= size+4096 || down >= 256<<10+4096 {
				t.Errorf("%d bytes went up the adapter's link, %d down", up, down)
			}
			want := nvmerdma.Stats{Out: 2 * size, In: 256 << 10, GPU: 18, Connections: 1}
			if got := r.remote.Stats(); got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
		})
	}
}

// The module is listed while nvidia-fs is open, and without a remote drive it serves none.
func TestListed(t *testing.T) {
	r := newRig(t, soft.Config{})
	text, err := fs.ReadFile(r.Kernel().FS(), "proc/driver/nvidia-fs/modules")
	if err != nil || !strings.HasPrefix(string(text), "nvme_rdma: 1.0\nnvme: 1.0\n") {
		t.Errorf("%q, %v", text, err)
	}
	m := nvmerdma.New(nvmerdma.Config{})
	if err := m.Register(nil); err != nil || m.Serves(0) || m.Port() != nil {
		t.Errorf("without a drive: %v, serves %v", err, m.Serves(0))
	}
	if err := m.Submit(nil); !errors.Is(err, syscall.ENODEV) {
		t.Errorf("submit: %v", err)
	}
	m.Unregister()
}

// What lies behind the end of a file is not read, and zero in its last block.
func TestEndOfFile(t *testing.T) {
	r := newRig(t, soft.Config{})
	const end = 300_000
	r.check(os.Truncate(r.path, end))
	r.fill(0xee)
	if n, err := r.buf.Read(r.file, 0, size, 0); n != end || err != nil {
		t.Fatal(n, err)
	}
	if got := r.memory(); !bytes.Equal(got[:end], r.data[:end]) || got[size-1] != 0xee {
		t.Error("other bytes")
	}
}

// The file system's own error reaches the program.
func TestFileErrors(t *testing.T) {
	r := newRig(t, soft.Config{})
	for _, off := range []int64{1 << 60, 1 << 62, 1<<63 - 8192} {
		f, err := os.OpenFile(r.path, os.O_RDWR, 0)
		r.check(err)
		_, want := f.WriteAt(make([]byte, 4096), off)
		r.check(f.Close())
		if _, err := r.buf.Write(r.file, off, 4096, 0); !errors.Is(err, errors.Unwrap(want)) {
			t.Errorf("write at %d: %v; pwrite: %v", off, err, want)
		}
	}
	r.fileHolds(r.data)
	r.read()
}
