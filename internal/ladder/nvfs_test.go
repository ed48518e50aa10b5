package ladder

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
	client "github.com/culvert-io/culvert/internal/dev/nvfs"
	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/route"
	"github.com/culvert-io/culvert/soft"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
	"github.com/culvert-io/culvert/soft/kernel/nvfs"
	"github.com/culvert-io/culvert/soft/kernel/nvfs/nvmerdma"
	"github.com/culvert-io/culvert/soft/kernel/nvfs/nvmestorage"
	"github.com/culvert-io/culvert/soft/kernel/nvrm"
	"github.com/culvert-io/culvert/soft/pcie"
)

// A softTree is a captured machine that says that it is a model.
type softTree struct{ tree }

func (softTree) Simulated() bool { return true }

// On a real machine the route must be asked for, on the software one it can be
// turned off; either way the ladder says so.
func TestNVFSMustBeAskedFor(t *testing.T) {
	loaded := tree{fstest.MapFS{"proc/driver/nvidia-fs/version": {Data: []byte("version: 2.28\n")}}}
	bare := tree{fstest.MapFS{}}
	for _, c := range []struct {
		os   dev.OS
		env  string
		test string // "" where the client is tried
		fix  string
	}{
		{bare, "", "kernel module", "modprobe nvidia-fs"},
		{bare, "1", "kernel module", "modprobe nvidia-fs"},
		{tree{fstest.MapFS{"dev/dxg": {}}}, "1", "GPU driver", "run Linux on the machine itself"},
		{loaded, "", "consent", "CULVERT_NVFS=1"},
		{loaded, "0", "consent", "CULVERT_NVFS=1"},
		{loaded, "1", "", ""},
		{softTree{bare}, "", "kernel module", "leave peer= out of CULVERT_SOFT"},
		{softTree{loaded}, "", "", ""},
		{softTree{loaded}, "1", "", ""},
		{softTree{loaded}, "0", "consent", "unset CULVERT_NVFS"},
	} {
		t.Setenv(nvfsSwitch, c.env)
		d := lookNVFS(c.os)
		if (d == nil) != (c.test == "") || d != nil && (d.Test != c.test || !strings.Contains(d.Fix, c.fix)) {
			t.Errorf("%T, %q: %v, want %q", c.os, c.env, d, c.test)
		}
	}
	t.Setenv(nvfsSwitch, "1")
	if _, d := findNVFS(nil, loaded); d == nil || d.Test != "node" {
		t.Errorf("a module without nodes: %v", d)
	}
}

// NVIDIA's library is not for the software machine, whatever its modules say.
func TestVendorIsNotForTheSoftwareMachine(t *testing.T) {
	dgx := fstest.MapFS{"proc/driver/nvidia-fs/modules": {Data: []byte("nvme: 1.0\n")}}
	if _, d := findVendor(nil, softTree{tree{dgx}}); d == nil || d.Test != "machine" {
		t.Errorf("got %v", d)
	}
}

// A lab is a GPU, the module and a file.
type lab struct {
	*soft.Machine
	GPU   gpu.Device
	near  *pcie.Function // the drive
	t     *testing.T
	m     *nvfs.Module
	drive *nvmestorage.Driver // nil if the module serves no files
	route *nvfsRoute
	plan  *Plan // nvfs, then host
	file  *storage.File
	path  string
	data  []byte
	mem   gpu.Span
}

const labSize = 256 << 10

// newLab loads the module with a driver that serves files, or with one that only
// says that it is there.
func newLab(t *testing.T, serves, real bool, cfg nvfs.Config) *lab {
	t.Helper()
	l := &lab{t: t, path: filepath.Join(t.TempDir(), "f"), data: noisy(labSize, 9)}
	var err error
	l.Machine, err = soft.New(soft.Config{Memory: 16 << 20, Without: []string{"nvidia-fs"}})
	l.check(err)
	l.GPU, err = l.Machine.GPU.Open(0)
	l.check(err)
	l.near, err = l.Plug(0)
	l.check(err)
	cfg.RM, cfg.Storage = l.P2P(), []nvfs.Storage{nvmerdma.New(nvmerdma.Config{})}
	if serves {
		l.drive = nvmestorage.New(func() (*pcie.Function, error) { return l.near, nil }, false)
		cfg.Storage = append(cfg.Storage, l.drive)
	}
	l.m, err = nvfs.New(l.Kernel(), cfg)
	l.check(err)
	c, err := client.Open(dev.Of(l.Machine))
	l.check(err)
	l.route = newNVFS(l.GPU, c, real)
	l.open()
	a, err := l.GPU.Alloc(gpu.KindDevice, labSize, 0)
	l.check(err)
	l.check(l.GPU.Fill(a, 0xC5, 1, labSize))
	l.mem = gpu.Span{Base: a, Len: labSize}
	l.route.Register(l.mem, gpu.KindDevice)
	l.plan = (&Ladder{routes: []Route{l.route, newHost(l.GPU)}}).Plan(FileSource(l.file))
	t.Cleanup(func() {
		l.route.Deregister(l.mem)
		l.check(errors.Join(l.route.Close(), l.GPU.Free(a)))
		l.m.Close()
		l.check(errors.Join(l.file.Close(), l.InUse(), l.GPU.Close(), l.Machine.Close()))
	})
	return l
}

func (l *lab) check(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) open() {
	l.t.Helper()
	l.check(os.WriteFile(l.path, l.data, 0o600))
	f, err := os.OpenFile(l.path, os.O_RDWR, 0)
	l.check(err)
	defer f.Close()
	l.file, err = storage.Adopt(int(f.Fd()))
	l.check(err)
	if l.file.Direct() < 0 {
		l.t.Skipf("needs a file system with O_DIRECT: %s", l.file.Facts.Direct.Source)
	}
}

func (l *lab) run(ctx context.Context, dir route.Dir, off, n uint64) (route.Receipt, error) {
	ops := []Op{{Dir: dir, Src: FileSource(l.file), Off: int64(off), Mem: l.mem.Slice(off, n), Kind: gpu.KindDevice, Buf: always{}}}
	res := make([]route.Receipt, 1)
	err := l.plan.Run(ctx, ops, res)
	return res[0], err
}

// bytes are those of the GPU.
func (l *lab) bytes() []byte {
	l.t.Helper()
	b := make([]byte, labSize)
	l.check(l.GPU.CopyOut(b, l.mem.Base))
	return b
}

func (l *lab) fileHolds(want []byte) {
	l.t.Helper()
	if got, err := os.ReadFile(l.path); err != nil || !bytes.Equal(got, want) {
		l.t.Errorf("the file holds something else, %v", err)
	}
}

// A driver that has registered and does not serve the file moves nothing, and says
// that all is well. The next route gets the request, and every later one.
func TestNVFSDriverThatDoesNotServe(t *testing.T) {
	for _, dir := range []route.Dir{route.Read, route.Write} {
		l := newLab(t, false, false, nvfs.Config{})
		want := l.data
		if dir == route.Write {
			want = bytes.Repeat([]byte{0xC5}, labSize)
		}
		for range 2 {
			r, err := l.run(context.Background(), dir, 0, labSize)
			d := r.Declined[route.NVFS]
			if err != nil || r.Route != route.Host || r.Bytes != labSize || r.By[route.NVFS] != 0 || d == nil || d.Test != "storage driver" {
				t.Fatalf("%v: %v, %v, declined %v", dir, &r, err, d)
			}
		}
		if !bytes.Equal(l.bytes(), want) {
			t.Errorf("%v: the GPU has other bytes", dir)
		}
		l.fileHolds(want)
		if _, d := l.route.Traits(FileSource(l.file)); d == nil || d.Test != "storage driver" {
			t.Errorf("%v: a new plan would try again: %v", dir, d)
		}
	}
}

// A new file can be written with the route required: the stack is proved on a file of
// our own.
func TestNVFSWritesNewFiles(t *testing.T) {
	l := newLab(t, true, true, nvfs.Config{})
	l.check(os.Truncate(l.path, 0))
	ladder := &Ladder{routes: []Route{l.route, newHost(l.GPU)}, prover: newProver(l.GPU, dev.Of(l.Machine), nil, nil)}
	plan, err := ladder.Plan(FileSource(l.file)).Only(route.NVFS)
	l.check(err)
	l.plan = plan
	r, err := l.run(context.Background(), route.Write, 0, labSize)
	if err != nil || r.Route != route.NVFS || r.Arrival != route.ArrivalProved || r.Host != (route.ByteCount{Evidence: route.Reported}) {
		t.Errorf("%v, %v", &r, err)
	}
	l.fileHolds(bytes.Repeat([]byte{0xC5}, labSize))
}

// btrfs gives files another device number than the module compares: the next route.
func TestNVFSOtherIdentity(t *testing.T) {
	l := newLab(t, true, false, nvfs.Config{})
	ops := []Op{{Src: FileSource(l.file), Mem: l.mem, Kind: gpu.KindDevice}}
	if err := l.route.explain(&ops[0], &route.Receipt{}, unix.ESTALE); !isRejected(err) {
		t.Errorf("%v", err)
	}
	if r, err := l.run(context.Background(), route.Read, 0, labSize); err != nil || r.Route != route.Host || r.Declined[route.NVFS].Test != "file identity" {
		t.Errorf("%v, %v", &r, err)
	}
}

// Memory that its owner takes back is freed memory, as on every route.
func TestNVFSRevoked(t *testing.T) {
	l := newLab(t, true, false, nvfs.Config{Callback: true})
	if r, err := l.run(context.Background(), route.Read, 0, labSize); err != nil || r.Route != route.NVFS {
		t.Fatalf("%v, %v", &r, err)
	}
	l.P2P().Revoke()
	for _, dir := range []route.Dir{route.Read, route.Write} {
		if r, err := l.run(context.Background(), dir, 0, labSize); !errors.Is(err, route.ErrFreed) || r.Bytes != 0 {
			t.Errorf("%v: %v, %v", dir, &r, err)
		}
	}
	l.fileHolds(l.data)
}

func TestNVFSCancelled(t *testing.T) {
	l := newLab(t, true, false, nvfs.Config{})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if r, err := l.run(ctx, route.Read, 0, labSize); !errors.Is(err, context.Canceled) || r.Bytes != 0 {
		t.Errorf("%v, %v", &r, err)
	}
	if !bytes.Equal(l.bytes(), bytes.Repeat([]byte{0xC5}, labSize)) {
		t.Error("bytes moved")
	}
}

// Many transfers of one buffer have shadow buffers of their own, up to a limit, from
// which on they wait, and leave none behind.
func TestNVFSShadowBuffers(t *testing.T) {
	l := newLab(t, true, false, nvfs.Config{})
	b, _ := l.route.bufs.get(l.mem.Base)
	seen := map[*client.Buffer]bool{}
	var last *client.Buffer
	for range nvfsMaxShadows {
		last = b.get()
		seen[last] = true
	}
	if len(seen) != nvfsMaxShadows || l.m.Groups() != nvfsMaxShadows {
		t.Errorf("%d shadow buffers, the module has %d, want %d", len(seen), l.m.Groups(), nvfsMaxShadows)
	}
	next := make(chan *client.Buffer)
	go func() { next <- b.get() }()
	b.put(last)
	if got := <-next; got != last {
		t.Error("a shadow buffer was lent twice")
	}
	for s := range seen {
		b.put(s)
	}
	l.route.Deregister(l.mem)
	if n := l.m.Groups(); n != 0 {
		t.Errorf("%d shadow buffers are left", n)
	}
}

// Where no second shadow buffer can be had, the first serves all.
func TestNVFSOneShadowBuffer(t *testing.T) {
	l := newLab(t, true, false, nvfs.Config{})
	b, _ := l.route.bufs.get(l.mem.Base)
	b.cfg.Addr = 1 // which the client refuses
	first := b.get()
	next := make(chan *client.Buffer)
	go func() { next <- b.get() }()
	b.put(first)
	if got := <-next; got != first {
		t.Error("there is another")
	}
	b.put(first)
}

// The ops of a batch go side by side, each by a shadow buffer of its own, and one
// that fails ends the batch.
func TestNVFSBatch(t *testing.T) {
	l := newLab(t, true, false, nvfs.Config{})
	const n, each = 32, labSize / 32
	ops, res := make([]Op, n), make([]route.Receipt, n)
	for i := range ops {
		at := uint64(i) * each
		ops[i] = Op{Src: FileSource(l.file), Off: int64(labSize - each - at), Mem: l.mem.Slice(at, each), Kind: gpu.KindDevice, Buf: always{}}
	}
	l.check(l.plan.Run(context.Background(), ops, res))
	got := l.bytes()
	for i := range ops {
		if res[i].Route != route.NVFS || res[i].Bytes != each || !bytes.Equal(got[i*each:(i+1)*each], l.data[ops[i].Off:ops[i].Off+each]) {
			t.Errorf("op %d: %v", i, &res[i])
		}
	}
	l.near.Unplug()
	if err := l.plan.Run(context.Background(), ops, make([]route.Receipt, n)); !errors.Is(err, unix.EIO) {
		t.Errorf("without a drive: %v", err)
	}
}

// An error counts more than a refusal, which would have everything tried again.
func TestWorst(t *testing.T) {
	boom, no := errors.New("boom"), &RejectedError{decline(route.NVFS, "test", "", ""), unix.EIO}
	for _, c := range []struct {
		errs []error
		want error
	}{{[]error{nil, nil}, nil}, {[]error{nil, no}, no}, {[]error{no, boom, nil}, boom}, {[]error{boom, no}, boom}} {
		if got := worst(c.errs); got != c.want {
			t.Errorf("%v: %v, want %v", c.errs, got, c.want)
		}
	}
}

func TestLocation(t *testing.T) {
	for pci, want := range map[string]uint64{"0000:65:00.0": 0x6500, "0001:0f:1c.3": 1<<32 | 0xf00 | 0x1c<<3 | 3, "": 0, "nonsense": 0} {
		if got := location(pci); got != want {
			t.Errorf("%q is %#x, want %#x", pci, got, want)
		}
	}
}

// A copy out of the bounce buffer, and one into it, waits for no stream: what is in a stream
// may wait for the buffer.
func TestBounceWaitsForNoStream(t *testing.T) {
	l := newLab(t, true, false, nvfs.Config{})
	s, err := l.GPU.(*nvrm.Device).Device.(*softgpu.Device).NewStreamFlags(softgpu.StreamDefault)
	l.check(err)
	word, err := l.GPU.Alloc(gpu.KindHost, 8, 0)
	l.check(err)
	clear(gpu.HostBytes(word, 8))
	l.check(s.Wait(word, 1, 8, gpu.CondEQ))
	for _, dir := range []route.Dir{route.Read, route.Write} {
		op := Op{Dir: dir, Src: FileSource(l.file), Mem: l.mem.Slice(512, 64<<10), Kind: gpu.KindDevice, Buf: always{}, strict: true}
		res := make([]route.Receipt, 1)
		if err := l.route.Run(t.Context(), []Op{op}, res); err != nil || res[0].Bytes != 64<<10 {
			t.Errorf("%v: %d bytes, %v", dir, res[0].Bytes, err)
		}
	}
	gpu.HostBytes(word, 8)[0] = 1
	l.check(errors.Join(s.Synchronize(), s.Close(), l.GPU.Free(word)))
}
