package cufile_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/route"
	"github.com/culvert-io/culvert/soft"
)

// A bench is a driver on a software machine with a file and GPU memory.
type fixture struct {
	t    *testing.T
	drv  *cufile.Driver
	dev  gpu.Device
	data []byte
	path string
}

func softConfig() soft.Config {
	cfg, err := soft.ParseConfig(os.Getenv("CULVERT_SOFT"))
	if err != nil {
		panic(err)
	}
	cfg.Zero = false // poison finds what relies on zeros
	cfg.Memory = 256 << 20
	if cfg.Peer != "" {
		cfg.Memory = 64 << 20 // several machines share what the device has
	}
	return cfg
}

func newFixture(t *testing.T, cfg soft.Config, size int, opts ...cufile.Option) *fixture {
	t.Helper()
	if *machineKind == machine.Soft {
		return newFixtureOn(t, softMachine(t, cfg), size, opts...)
	}
	m, err := machine.OpenAs(*machineKind)
	if err != nil {
		t.Fatal(err)
	}
	return newFixtureOn(t, m, size, opts...)
}

// softMachine is a software machine that ends with the test.
func softMachine(t *testing.T, cfg soft.Config) *machine.Machine {
	t.Helper()
	m, err := machine.FromSoft(cfg, "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func newFixtureOn(t *testing.T, m *machine.Machine, size int, opts ...cufile.Option) *fixture {
	t.Helper()
	drv, err := cufile.Open(m, opts...)
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, drv: drv, path: filepath.Join(t.TempDir(), "data")}
	t.Cleanup(func() {
		if err := drv.Close(); err != nil && drv.UseCount() > 0 {
			t.Error(err)
		}
	})
	if f.dev, err = drv.Device(0); err != nil {
		t.Fatal(err)
	}
	f.data = make([]byte, size)
	rand.NewChaCha8([32]byte{1}).Read(f.data)
	if err := os.WriteFile(f.path, f.data, 0o600); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fixture) open(flags int) *cufile.File {
	f.t.Helper()
	file, err := os.OpenFile(f.path, flags, 0)
	if err != nil {
		f.t.Fatal(err)
	}
	defer file.Close()
	h, err := f.drv.Register(file)
	if err != nil {
		f.t.Fatal(err)
	}
	return h
}

func (f *fixture) alloc(n uint64) gpu.Addr {
	f.t.Helper()
	a, err := f.dev.Alloc(gpu.KindDevice, n, 0)
	if err != nil {
		f.t.Fatal(err)
	}
	return a
}

func (f *fixture) buffer(n uint64) *cufile.Buffer {
	f.t.Helper()
	b, err := f.drv.RegisterBuffer(f.alloc(n), n)
	if err != nil {
		f.t.Fatal(err)
	}
	return b
}

func (f *fixture) gpuBytes(s gpu.Span) []byte {
	f.t.Helper()
	out := make([]byte, s.Len)
	if err := f.dev.CopyOut(out, s.Addr()); err != nil {
		f.t.Fatal(err)
	}
	return out
}

// Every route that the software machine has moves the same bytes, wherever the
// request begins and ends.
func TestRoutesAgree(t *testing.T) {
	const size = 3<<20 + 777
	f := newFixture(t, softConfig(), size)
	buf := f.buffer(4 << 20)
	plan, err := f.open(os.O_RDWR).Plan(0)
	if err != nil {
		t.Fatal(err)
	}
	if got := plan.Usable(); !slices.Contains(got, route.Ring) || !slices.Contains(got, route.Host) || !slices.Contains(got, route.Mapped) {
		t.Fatalf("usable routes are %v, want ring, mapped and host among them", got)
	}
	for _, id := range plan.Usable() {
		t.Run(id.String(), func(t *testing.T) {
			f := *f
			f.t = t
			h := f.open(os.O_RDWR)
			defer h.Close()
			if err := h.Require(0, id); err != nil {
				t.Fatal(err)
			}
			for _, c := range []struct{ off, n int64 }{
				{0, 1},
				{0, 4096},
				{1, 4095},
				{4095, 4098},
				{511, 1 << 20},
				{0, 2 << 20},
				{3, 200<<10 - 5},
				{size - 10, 100},
				{size, 5},
				{size + 5, 5},
				{1 << 20, 0},
			} {
				f.roundTrip(h, buf, id, 4099, c.off, c.n)
			}
			// What a drive takes, the second up to a file's end in mid block.
			for _, c := range []struct{ off, n int64 }{{4096, 1 << 20}, {2 << 20, 1<<20 + 4096}} {
				f.roundTrip(h, buf, id, 8192, c.off, c.n)
			}
		})
	}
}

// roundTrip reads a range to a place of the buffer and checks the bytes, the
// canaries around them, and the receipt.
func (f *fixture) roundTrip(h *cufile.File, buf *cufile.Buffer, id route.ID, at uint64, off, n int64) {
	f.t.Helper()
	const canary = 64
	if err := f.dev.Fill(buf.Span().Addr(), 0xC5, 1, buf.Span().Len); err != nil {
		f.t.Fatal(err)
	}
	r, err := h.ReadAt(context.Background(), buf.Span().Slice(at, uint64(n)), off)
	if d, ok := errors.AsType[*route.RequireError](err); ok {
		if d.Want != id {
			f.t.Errorf("[%d,+%d): %v", off, n, err)
		}
		return // the route does not take such a request, and said so
	}
	if err != nil {
		f.t.Fatalf("[%d,+%d): %v", off, n, err)
	}
	want := f.data[min(off, int64(len(f.data))):min(off+n, int64(len(f.data)))]
	if r.Bytes != int64(len(want)) {
		f.t.Errorf("[%d,+%d): %d bytes, want %d", off, n, r.Bytes, len(want))
	}
	if len(want) > 0 && (r.Route != id || r.By[id]+r.Head+r.Tail != r.Bytes) {
		f.t.Errorf("[%d,+%d): the receipt says %v", off, n, &r)
	}
	host := route.ByteCount{Bytes: r.Bytes} // every route but those that fill GPU memory without a copy in between
	switch {
	case id == route.P2PDMA:
		host = route.ByteCount{Bytes: r.Head + r.Tail, Evidence: route.Inferred}
	case id < route.Ring, id == route.Mapped:
		host.Bytes = 0
	}
	if n > 0 && r.Host != host {
		f.t.Errorf("[%d,+%d): %d bytes moved, host bytes are %+v, want %+v", off, n, r.Bytes, r.Host, host)
	}
	got := f.gpuBytes(buf.Span().Slice(at-canary, uint64(len(want))+2*canary))
	if !bytes.Equal(got[canary:canary+len(want)], want) {
		f.t.Errorf("[%d,+%d): wrong bytes", off, n)
	}
	for i, c := range append(got[:canary:canary], got[canary+len(want):]...) {
		if c != 0xC5 {
			f.t.Fatalf("[%d,+%d): the byte %d outside the range changed", off, n, i)
		}
	}
}

// Writes by every route that writes leave the same file.
func TestWritesAgree(t *testing.T) {
	f := newFixture(t, softConfig(), 2<<20)
	buf := f.buffer(4 << 20)
	for _, flags := range []int{os.O_RDWR, os.O_RDWR | unix.O_DIRECT} {
		for _, id := range f.writing() {
			h := f.open(flags)
			if err := h.Require(0, id); err != nil {
				t.Fatal(err)
			}
			for _, c := range []struct{ off, n int64 }{{0, 4096}, {3, 5000}, {1<<20 - 1, 1<<20 + 2}, {2<<20 + 5, 10}, {0, 3 << 20}} {
				f.writeAndCheck(h, buf, id, c.off, c.n)
			}
			h.Close()
		}
	}
}

// writing are the routes that take writes.
func (f *fixture) writing() []route.ID {
	ids := []route.ID{route.Ring, route.Host}
	if plan, err := f.open(os.O_RDWR).Plan(0); err == nil {
		for _, id := range []route.ID{route.NVFS, route.P2PDMA} {
			if slices.Contains(plan.Usable(), id) {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

func (f *fixture) writeAndCheck(h *cufile.File, buf *cufile.Buffer, id route.ID, off, n int64) {
	f.t.Helper()
	src := make([]byte, n)
	rand.NewChaCha8([32]byte{byte(off), byte(n), byte(id)}).Read(src)
	mem := buf.Span().Slice(513, uint64(n))
	if err := f.dev.CopyIn(mem.Addr(), src); err != nil {
		f.t.Fatal(err)
	}
	r, err := h.WriteAt(context.Background(), mem, off)
	if _, ok := errors.AsType[*route.RequireError](err); ok {
		return // the route does not take such a request, and said so
	}
	if err != nil || r.Bytes != n || r.Route != id {
		f.t.Fatalf("%s [%d,+%d): %v, %v", id, off, n, &r, err)
	}
	if grow := off + n - int64(len(f.data)); grow > 0 {
		f.data = append(f.data, make([]byte, grow)...)
	}
	copy(f.data[off:], src)
	got, err := os.ReadFile(f.path)
	if err != nil {
		f.t.Fatal(err)
	}
	if !bytes.Equal(got, f.data) {
		f.t.Fatalf("%s [%d,+%d): the file has %d bytes and differs from the model of %d", id, off, n, len(got), len(f.data))
	}
}

func TestHostMemory(t *testing.T) {
	f := newFixture(t, softConfig(), 100_000)
	h := f.open(os.O_RDONLY)
	defer h.Close()
	for _, kind := range []gpu.Kind{gpu.KindHost, gpu.KindManaged} {
		a, err := f.dev.Alloc(kind, 100_000, 0)
		if err != nil {
			t.Fatal(err)
		}
		r, err := h.ReadAt(context.Background(), gpu.Span{Base: a, Len: 99_000}, 500)
		if err != nil || r.Bytes != 99_000 || !bytes.Equal(gpu.HostBytes(a, 99_000), f.data[500:99_500]) {
			t.Errorf("%v memory: %v, %v", kind, &r, err)
		}
		if err := f.dev.Free(a); err != nil {
			t.Error(err)
		}
	}
	// A pointer to nothing is the kernel's to find.
	_, err := h.ReadAt(context.Background(), gpu.Span{Base: 4096, Len: 10}, 0)
	if !errors.Is(err, unix.EFAULT) || cufile.CodeOf(err) != cufile.IOError {
		t.Errorf("a wild pointer: %v", err)
	}
}

// The checks that NVIDIA's library was seen to make, with its codes.
func TestArgumentChecks(t *testing.T) {
	f := newFixture(t, softConfig(), 10_000)
	h, ro := f.open(os.O_RDWR), f.open(os.O_RDONLY)
	wo := f.open(os.O_WRONLY)
	buf := f.buffer(65536)
	plain := f.alloc(65536)
	ctx := context.Background()
	read := func(h *cufile.File, s gpu.Span, off int64) error { _, err := h.ReadAt(ctx, s, off); return err }
	closed := f.open(os.O_RDONLY)
	closed.Close()
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	app, err := os.OpenFile(f.path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer app.Close()
	twice, err := os.Open(f.path)
	if err != nil {
		t.Fatal(err)
	}
	defer twice.Close()
	if _, err := f.drv.Register(twice); err != nil {
		t.Fatal(err)
	}
	managed, err := f.dev.Alloc(gpu.KindManaged, 4096, 0)
	if err != nil {
		t.Fatal(err)
	}
	register := func(fd int) error { _, err := f.drv.RegisterFD(fd); return err }
	host, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	regbuf := func(a gpu.Addr, n uint64) error { _, err := f.drv.RegisterBuffer(a, n); return err }
	for _, c := range []struct {
		name string
		err  error
		want cufile.Code
	}{
		{"descriptor -1", register(-1), cufile.InvalidValue},
		{"closed descriptor", register(9999), cufile.InvalidValue},
		{"directory", register(int(dir.Fd())), cufile.InvalidFileType},
		{"O_APPEND", register(int(app.Fd())), cufile.InvalidFileOpenFlag},
		{"same descriptor twice", register(int(twice.Fd())), cufile.HandleAlreadyRegistered},
		{"same base again", regbuf(buf.Span().Base, 4096), cufile.MemoryAlreadyRegistered},
		{"inside another registration", regbuf(buf.Span().Base+4096, 4096), cufile.Success},
		{"past the allocation", regbuf(plain, 8<<20), cufile.CUDAPointerRangeError},
		{"length 0", regbuf(plain, 0), cufile.InvalidValue},
		{"null", regbuf(0, 4096), cufile.InvalidValue},
		{"managed", regbuf(managed, 4096), cufile.CUDAMemoryTypeInvalid},
		{"host memory", regbuf(gpu.Addr(uintptr(unsafe.Pointer(&host[0]))), 10), cufile.Success},
		{"memory that does not exist", regbuf(12345, 10), cufile.InvalidValue},
		{"addresses that overflow", regbuf(gpu.Addr(uintptr(unsafe.Pointer(&host[0]))), ^uint64(0)), cufile.InvalidValue},
		{"MAP_FAILED", regbuf(^gpu.Addr(0), 4096), cufile.InvalidValue},
		{"memory that ends early", regbuf(gpu.Addr(uintptr(unsafe.Pointer(&host[0]))), 1<<46), cufile.InvalidValue},
		{"null buffer", read(h, gpu.Span{Len: 10}, 0), cufile.InvalidValue},
		{"negative offset", read(h, buf.Span(), -1), cufile.InvalidValue},
		{"offset overflow", read(h, gpu.Span{Base: plain, Len: 1 << 63}, 1<<62), cufile.InvalidValue},
		{"deregistered handle", read(closed, buf.Span(), 0), cufile.HandleNotRegistered},
		{"past the registered buffer", read(h, gpu.Span{Base: buf.Span().Base, Off: 65530, Len: 10}, 0), cufile.InvalidMappingRange},
		{"far past the registered buffer", read(h, gpu.Span{Base: buf.Span().Base, Off: 1 << 63, Len: 10}, 0), cufile.InvalidMappingRange},
		{"past the allocation, unregistered", read(h, gpu.Span{Base: plain, Off: 65530, Len: 8 << 20}, 0), cufile.CUDAPointerRangeError},
		{"size 0", read(h, buf.Span().Slice(0, 0), 0), cufile.Success},
		{"read of a write-only file", read(wo, buf.Span(), 0), cufile.InvalidFileOpenFlag},
		{"write of a read-only file", func() error { _, err := ro.WriteAt(ctx, buf.Span(), 0); return err }(), cufile.InvalidFileOpenFlag},
	} {
		if got := cufile.CodeOf(c.err); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, c.err, c.want)
		}
	}
}

func TestReceiptNamesWhatWasDeclined(t *testing.T) {
	t.Setenv("CULVERT_NVFS", "0")
	f := newFixture(t, softConfig(), 8192)
	h := f.open(os.O_RDONLY)
	buf := f.buffer(65536)
	r, err := h.ReadAt(context.Background(), buf.Span().Slice(0, 8192), 0)
	if err != nil {
		t.Fatal(err)
	}
	for id := route.Vendor; id < r.Route; id++ {
		if d := r.Declined[id]; d != nil && (d.Test == "" || d.Evidence == "") {
			t.Errorf("%v was declined without a reason: %+v", id, d)
		}
	}
	if r.Declined[route.NVFS] == nil {
		t.Errorf("nothing says why nvfs was not taken: %v", &r)
	}
	if r.Route >= route.Ring && r.Host.Bytes != r.Bytes {
		t.Errorf("a staged read of %d bytes counts %d host bytes", r.Bytes, r.Host.Bytes)
	}
}

func TestRequireRefuses(t *testing.T) {
	f := newFixture(t, softConfig(), 8192)
	h := f.open(os.O_RDONLY)
	err := h.Require(0, route.Vendor)
	if _, ok := errors.AsType[*route.RequireError](err); !ok || cufile.CodeOf(err) != cufile.IONotSupported {
		t.Errorf("requiring NVIDIA's library: %v", err)
	}
	if err := h.Require(0, route.Host); err != nil {
		t.Fatal(err)
	}
	r, err := h.ReadAt(context.Background(), f.buffer(65536).Span().Slice(0, 8192), 0)
	if err != nil || r.Route != route.Host {
		t.Errorf("%v, %v", &r, err)
	}
}

func TestDriverIsCounted(t *testing.T) {
	d := cufile.New(softMachine(t, softConfig()))
	if err := d.Close(); cufile.CodeOf(err) != cufile.DriverNotInitialized {
		t.Errorf("closing a closed driver: %v", err)
	}
	for want := 1; want <= 2; want++ {
		if err := d.Open(); err != nil || d.UseCount() != want {
			t.Fatalf("open %d: %v, count %d", want, err, d.UseCount())
		}
	}
	for want := 1; want >= 0; want-- {
		if err := d.Close(); err != nil || d.UseCount() != want {
			t.Fatalf("close: %v, count %d, want %d", err, d.UseCount(), want)
		}
	}
	// A registration opens it.
	file, err := os.Open(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := d.Register(file); err != nil || d.UseCount() != 1 {
		t.Fatalf("implicit open: %v, count %d", err, d.UseCount())
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestCancelledReadStops(t *testing.T) {
	f := newFixture(t, softConfig(), 32<<20)
	h := f.open(os.O_RDONLY)
	buf := f.buffer(32 << 20)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, id := range []route.ID{route.Ring, route.Host, route.Mapped} {
		if err := h.Require(0, id); err != nil {
			t.Fatal(err)
		}
		if r, err := h.ReadAt(ctx, buf.Span(), 0); !errors.Is(err, context.Canceled) || r.Bytes == 32<<20 {
			t.Errorf("%v: %d bytes, %v", id, r.Bytes, err)
		}
	}
}

func TestBatch(t *testing.T) {
	f := newFixture(t, softConfig(), 1<<20)
	h := f.open(os.O_RDONLY)
	buf := f.buffer(1 << 20)
	const n, block = 128, 4096
	reqs, res := make([]cufile.Request, n), make([]route.Receipt, n)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range reqs {
		reqs[i] = cufile.Request{File: h, Mem: buf.Span().Slice(uint64(i*block), block), Off: rng.Int64N(1<<20 - block)}
	}
	if err := f.drv.Do(context.Background(), reqs, res); err != nil {
		t.Fatal(err)
	}
	for i, q := range reqs {
		if res[i].Bytes != block || !bytes.Equal(f.gpuBytes(q.Mem), f.data[q.Off:q.Off+block]) {
			t.Errorf("request %d at %d: %v", i, q.Off, &res[i])
		}
	}
	reqs[5].Off = -1
	if err := f.drv.Do(context.Background(), reqs, res); cufile.CodeOf(err) != cufile.InvalidValue {
		t.Errorf("a batch with a bad request: %v", err)
	}
	if err := h.Close(); err != nil { // would hang if the batch kept a lock
		t.Error(err)
	}
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("needs a build without the race detector, which allocates")
	}
	f := newFixture(t, softConfig(), 1<<20)
	h := f.open(os.O_RDONLY)
	buf := f.buffer(1 << 20)
	ctx := context.Background()
	for _, id := range []route.ID{route.Ring, route.Host} {
		if err := h.Require(0, id); err != nil {
			t.Fatal(err)
		}
		for _, n := range []uint64{4096, 1 << 20} {
			limit := 1.0
			if id == route.Ring && n > 4096 {
				limit = 24 // the software GPU makes two objects for each event
			}
			span := buf.Span().Slice(0, n)
			if got := testing.AllocsPerRun(100, func() {
				if _, err := h.ReadAt(ctx, span, 0); err != nil {
					t.Fatal(err)
				}
			}); got >= limit {
				t.Errorf("%v, %d bytes: %v allocations per read", id, n, got)
			}
		}
	}
}
