package cufile_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/route"
	"github.com/culvert-io/culvert/soft"
)

// nvfs opens the fixture's file where nvidia-fs serves it.
func (f *fixture) nvfs(flags int) *cufile.File {
	f.t.Helper()
	h := f.open(flags)
	plan, err := h.Plan(0)
	if err != nil {
		f.t.Fatal(err)
	}
	if !slices.Contains(plan.Usable(), route.NVFS) {
		f.t.Skipf("needs nvidia-fs and a file system with O_DIRECT: %v", plan.Declined)
	}
	return h
}

const canaryByte = 0xC5

// canary fills a buffer.
func (f *fixture) canary(b *cufile.Buffer) {
	f.t.Helper()
	if err := f.dev.Fill(b.Span().Addr(), canaryByte, 1, b.Span().Len); err != nil {
		f.t.Fatal(err)
	}
}

// holds wants bytes at an offset of a buffer, and canaries everywhere else.
func (f *fixture) holds(b *cufile.Buffer, at uint64, want []byte) {
	f.t.Helper()
	all := bytes.Repeat([]byte{canaryByte}, int(b.Span().Len))
	copy(all[at:], want)
	if err := same("the buffer", f.gpuBytes(b.Span()), all, 0); err != nil {
		f.t.Error(err)
	}
}

func (f *fixture) fileHolds(want []byte) {
	f.t.Helper()
	got, err := os.ReadFile(f.path)
	if err != nil || len(got) != len(want) {
		f.t.Fatalf("the file has %d bytes, want %d, %v", len(got), len(want), err)
	}
	if err := same("the file", got, want, 0); err != nil {
		f.t.Error(err)
	}
}

// Aligned transfers between files and registered buffers go by nvidia-fs, and their
// receipts show that host memory was not touched; what bounces shows its bytes on
// the way into host memory and out of it.
func TestNVFSIsTheDefault(t *testing.T) {
	const size = 1 << 20
	f := newFixture(t, softConfig(), size)
	h, buf := f.nvfs(os.O_RDWR), f.buffer(size)
	ctx := context.Background()
	f.canary(buf)
	r, err := h.ReadAt(ctx, buf.Span().Slice(4096, 128<<10), 64<<10)
	if err != nil || r.Route != route.NVFS || r.By[route.NVFS] != 128<<10 || r.Host != (route.ByteCount{}) {
		t.Errorf("read: %v, %v", &r, err)
	}
	f.holds(buf, 4096, f.data[64<<10:192<<10])
	if p := r.Diagram("f", "g"); p != "f ══ 128.0 KiB ══▶ [drive DMA] ══ 128.0 KiB ══▶ g (software machine)\n" {
		t.Error(p)
	}
	r, err = h.WriteAt(ctx, buf.Span().Slice(4096, 4096), 512<<10)
	if err != nil || r.Route != route.NVFS || r.Bytes != 4096 || r.Host != (route.ByteCount{}) {
		t.Errorf("write: %v, %v", &r, err)
	}
	copy(f.data[512<<10:], f.data[64<<10:64<<10+4096])
	f.fileHolds(f.data)

	f.canary(buf)
	r, err = h.ReadAt(ctx, buf.Span().Slice(100, 20_000), 4096+100)
	if err != nil || r.Bytes != 20_000 || r.Head != 3996 || r.Tail != 3716 || r.By[route.NVFS] != 3*4096 ||
		r.By[route.Host] != r.Head+r.Tail || r.Host.Bytes != r.Head+r.Tail {
		t.Errorf("unaligned: %v, %v", &r, err)
	}
	f.holds(buf, 100, f.data[4196:24_196])
	if err := h.Require(0, route.Host); err != nil {
		t.Fatal(err)
	}
	if r, err = h.ReadAt(ctx, buf.Span(), 0); err != nil || r.Host.Bytes != size {
		t.Errorf("by the host: %v, %v", &r, err)
	}
	if p := r.Diagram("f", "g"); strings.Count(p, "1.0 MiB") != 2 || !strings.Contains(p, "host memory") {
		t.Error(p)
	}
}

// What nvidia-fs does not take is declined for a reason.
func TestNVFSDeclines(t *testing.T) {
	f := newFixture(t, softConfig(), 1<<20)
	h, buf := f.nvfs(os.O_RDWR), f.buffer(1<<20)
	loose := f.alloc(64 << 10)
	for name, c := range map[string]struct {
		mem       gpu.Span
		off       int64
		test, fix string
	}{
		"no whole block":   {buf.Span().Slice(1, 5000), 1, "alignment", ""},
		"aligned unlike":   {buf.Span().Slice(512, 64<<10), 0, "alignment", "use buffer offsets that are congruent to the file's"},
		"not registered":   {gpu.Span{Base: loose, Len: 4096}, 0, "buffer", "register the buffer"},
		"small buffer":     {f.buffer(2048).Span(), 0, "alignment", ""},
		"a single byte":    {buf.Span().Slice(0, 1), 0, "alignment", ""},
		"just not a block": {buf.Span().Slice(0, 4095), 4096, "alignment", ""},
	} {
		r, err := h.ReadAt(context.Background(), c.mem, c.off)
		d := r.Declined[route.NVFS]
		if err != nil || r.Bytes != int64(c.mem.Len) || d == nil || d.Test != c.test || d.Fix != c.fix || d.Evidence == "" || r.By[route.NVFS] != 0 {
			t.Errorf("%s: %v, %v, declined %v", name, &r, err, d)
		}
	}
}

// A route that is required moves everything by itself, or says that it does not:
// reads bounce within the GPU, and no host memory is touched.
func TestNVFSAlone(t *testing.T) {
	const size = 3<<20 + 777
	f := newFixture(t, softConfig(), size)
	h, buf := f.nvfs(os.O_RDWR), f.buffer(4<<20)
	if err := h.Require(0, route.NVFS); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ at, off, n int64 }{
		{0, 0, 8192}, {1, 1, 10_000}, {513, 7, 1 << 20}, {0, size - 5000, 9000}, {3, size, 10}, {9, 4096, 2<<20 + 5},
	} {
		f.canary(buf)
		r, err := h.ReadAt(context.Background(), buf.Span().Slice(uint64(c.at), uint64(c.n)), c.off)
		want := f.data[c.off:min(c.off+c.n, size)]
		if err != nil || r.Bytes != int64(len(want)) || r.By[route.NVFS] != r.Bytes || r.Host.Bytes != 0 {
			t.Errorf("%+v: %v, %v", c, &r, err)
		}
		f.holds(buf, uint64(c.at), want)
	}
	// Memory that is not registered, and not aligned as the file is.
	loose := gpu.Span{Base: f.alloc(64 << 10), Len: 64 << 10}
	if r, err := h.WriteAt(context.Background(), loose.Slice(100, 8192), 4096); err != nil || r.By[route.NVFS] != 8192 {
		t.Errorf("write: %v, %v", &r, err)
	}
	copy(f.data[4096:], f.gpuBytes(loose.Slice(100, 8192)))
	_, err := h.WriteAt(context.Background(), buf.Span().Slice(0, 4097), 0)
	if !refused(err) || !strings.Contains(err.Error(), "whole blocks") {
		t.Errorf("an unaligned write: %v", err)
	}
	f.fileHolds(f.data)
}

// The end of the file is where reads end; what lies behind it in memory is left
// alone, also in the block that the file ends in.
func TestNVFSAtTheEnd(t *testing.T) {
	const size = 100_000
	f := newFixture(t, softConfig(), size)
	h, buf := f.nvfs(os.O_RDWR), f.buffer(1<<20)
	for _, c := range []struct {
		off  int64
		n    uint64
		want int64
	}{{0, 1 << 20, size}, {98_304, 4096, 1696}, {98_304, 1 << 19, 1696}, {102_400, 4096, 0}, {1 << 30, 1 << 20, 0}, {94_208, 8192, 5792}} {
		f.canary(buf)
		r, err := h.ReadAt(context.Background(), buf.Span().Slice(0, c.n), c.off)
		if err != nil || r.Bytes != c.want {
			t.Errorf("%+v: %v, %v", c, &r, err)
		}
		f.holds(buf, 0, f.data[min(c.off, size):min(c.off+c.want, size)])
	}
	// A write behind the end makes the file longer, with a hole in between.
	f.canary(buf)
	if r, err := h.WriteAt(context.Background(), buf.Span().Slice(0, 8192), 1<<20); err != nil || r.By[route.NVFS] != 8192 {
		t.Errorf("write: %v, %v", &r, err)
	}
	want := append(slices.Clone(f.data), make([]byte, 1<<20-size)...)
	f.fileHolds(append(want, bytes.Repeat([]byte{canaryByte}, 8192)...))
}

// Holes read as zeros, whatever the memory held, and neighbours are left alone.
func TestNVFSSparse(t *testing.T) {
	const size = 1 << 20
	f := newFixture(t, softConfig(), size)
	h, buf := f.nvfs(os.O_RDWR), f.buffer(size)
	fd, err := os.OpenFile(f.path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer fd.Close()
	for _, hole := range [][2]int64{{0, 64 << 10}, {128 << 10, 4096}, {136 << 10, 4096}, {512 << 10, 512 << 10}} {
		if err := unix.Fallocate(int(fd.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, hole[0], hole[1]); err != nil {
			t.Skipf("needs a file system with holes: %v", err)
		}
		clear(f.data[hole[0] : hole[0]+hole[1]])
	}
	for _, c := range []struct{ off, n, holes int64 }{
		{0, size, 64<<10 + 2*4096 + 512<<10},
		{0, 4096, 4096},
		{124 << 10, 64 << 10, 2 * 4096},
		{60 << 10, 8192, 4096},
		{768 << 10, 4096, 4096},
	} {
		f.canary(buf)
		r, err := h.ReadAt(context.Background(), buf.Span().Slice(0, uint64(c.n)), c.off)
		if err != nil || r.Bytes != c.n || r.By[route.NVFS] != c.n || r.Host.Bytes != 0 || r.Holes != c.holes {
			t.Errorf("%+v: %v, %v", c, &r, err)
		}
		f.holds(buf, 0, f.data[c.off:c.off+c.n])
	}
	if r, err := h.WriteAt(context.Background(), buf.Span().Slice(0, 4096), 16<<10); err != nil || r.Bytes != 4096 {
		t.Errorf("a write into a hole: %v, %v", &r, err)
	}
	copy(f.data[16<<10:], f.data[768<<10:772<<10])
	f.fileHolds(f.data)
}

// A write that the file system refuses because of its offset gets its answer.
func TestNVFSFarOffsets(t *testing.T) {
	f := newFixture(t, softConfig(), 1<<20)
	h, buf := f.nvfs(os.O_RDWR), f.buffer(1<<20)
	for _, off := range []int64{1 << 60, 1 << 62, 1<<63 - 8192} {
		fd, err := os.OpenFile(h.Name(), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, want := fd.WriteAt(make([]byte, 4096), off)
		fd.Close()
		cause := errors.Unwrap(want) // of the file system
		if _, err := h.WriteAt(context.Background(), buf.Span().Slice(0, 4096), off); !errors.Is(err, cause) {
			t.Errorf("write at %d: %v; pwrite: %v", off, err, want)
		}
	}
}

// A file that shrinks under a transfer by the ladder's choice is a short read.
// (TestShrinkingFile does it at random, by each route.)
func TestNVFSShrunkFile(t *testing.T) {
	f := newFixture(t, softConfig(), 1<<20)
	h, buf := f.nvfs(os.O_RDWR), f.buffer(1<<20)
	if err := os.Truncate(f.path, 300_000); err != nil {
		t.Fatal(err)
	}
	f.canary(buf)
	if r, err := h.ReadAt(context.Background(), buf.Span(), 0); err != nil || r.Bytes != 300_000 {
		t.Errorf("%v, %v", &r, err)
	}
	f.holds(buf, 0, f.data[:300_000])
}

// A drive that is pulled out is an error that names file and cause if nvfs is required;
// what was written before is in the file, and everything can be closed. Otherwise the next
// route is asked, because the module answers EIO for failures of its own too: here the
// file is still there.
func TestNVFSDriveVanishes(t *testing.T) {
	cfg := softConfig()
	m := softMachine(t, cfg)
	f := newFixtureOn(t, m, 1<<20)
	h, buf := f.nvfs(os.O_RDWR), f.buffer(1<<20)
	f.canary(buf)
	if r, err := h.WriteAt(context.Background(), buf.Span().Slice(0, 64<<10), 0); err != nil || r.Route != route.NVFS {
		t.Fatalf("%v, %v", &r, err)
	}
	copy(f.data, bytes.Repeat([]byte{canaryByte}, 64<<10))
	machine, _ := soft.Of(m.GPU)
	machine.StoragePort().Unplug()
	other := f.nvfs(os.O_RDWR)
	if r, err := other.ReadAt(context.Background(), buf.Span().Slice(0, 64<<10), 0); err != nil || r.Declined[route.NVFS] == nil || r.Declined[route.NVFS].Test != "input/output" {
		t.Errorf("not required: %v, %v", &r, err)
	}
	if err := errors.Join(other.Close(), h.Require(0, route.NVFS)); err != nil {
		t.Fatal(err)
	}
	for _, call := range []func(context.Context, gpu.Span, int64) (route.Receipt, error){h.ReadAt, h.WriteAt} {
		r, err := call(context.Background(), buf.Span(), 0)
		if r.Bytes != 0 || cufile.CodeOf(err) != cufile.IOError || !errors.Is(err, unix.EIO) || !strings.Contains(err.Error(), f.path) {
			t.Errorf("%v, %v", &r, err)
		}
	}
	f.holds(buf, 0, nil)
	f.fileHolds(f.data)
	if err := errors.Join(buf.Close(), h.Close()); err != nil {
		t.Error(err)
	}
}

const fullEnv = "CUFILE_TEST_FULL"

// A full file system is its own error; what was acknowledged before is there, and
// there is room again for what is deleted.
func TestNVFSFullFileSystem(t *testing.T) {
	if dir := os.Getenv(fullEnv); dir != "" {
		fillUp(t, dir)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestNVFSFullFileSystem$", "-test.v")
	cmd.Env = append(os.Environ(), fullEnv+"="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	if _, ran := errors.AsType[*exec.ExitError](err); err != nil && !ran {
		t.Skipf("needs a user namespace, to mount a file system in: %v", err)
	}
	if bytes.Contains(out, []byte("--- SKIP")) {
		t.Skipf("%s", out)
	}
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// fillUp runs in a mount namespace of its own.
func fillUp(t *testing.T, dir string) {
	t.Helper()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("needs to mount a tmpfs: %v", err)
	}
	f := newFixture(t, softConfig(), 256<<10)
	f.path = filepath.Join(dir, "data")
	if err := os.WriteFile(f.path, f.data, 0o600); err != nil {
		t.Fatal(err)
	}
	h, buf := f.nvfs(os.O_RDWR), f.buffer(2<<20)
	f.canary(buf)
	if r, err := h.WriteAt(context.Background(), buf.Span().Slice(0, 64<<10), 256<<10); err != nil || r.Route != route.NVFS {
		t.Fatalf("%v, %v", &r, err)
	}
	r, err := h.WriteAt(context.Background(), buf.Span(), 320<<10)
	if !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), f.path) || r.Bytes >= 1<<20 {
		t.Errorf("a write of 2 MiB to a file system of 1: %v, %v", &r, err)
	}
	got, err := os.ReadFile(f.path)
	want := append(slices.Clone(f.data), bytes.Repeat([]byte{canaryByte}, 64<<10)...)
	if err != nil || len(got) < len(want) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	if err := same("the file", got[:len(want)], want, 0); err != nil {
		t.Error(err)
	}
	f.holds(buf, 0, nil)
	if err := os.Truncate(f.path, int64(len(want))); err != nil {
		t.Fatal(err)
	}
	if r, err := h.WriteAt(context.Background(), buf.Span().Slice(0, 64<<10), 320<<10); err != nil || r.Route != route.NVFS {
		t.Errorf("with room again: %v, %v", &r, err)
	}
}

// pastTrial reads and writes until samples will do: the first transfers of a block stack
// are compared in full.
func pastTrial(t *testing.T, h *cufile.File, buf *cufile.Buffer) {
	t.Helper()
	for _, call := range []func(context.Context, gpu.Span, int64) (route.Receipt, error){h.ReadAt, h.WriteAt} {
		for range 1000 {
			r, err := call(context.Background(), buf.Span().Slice(0, 4096), 0)
			if err != nil {
				t.Fatal(err)
			}
			if r.Arrival != route.ArrivalProved {
				break
			}
		}
	}
}

// A transfer allocates nothing, whole or unaligned, in either direction.
func TestNVFSAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("needs a build without the race detector, which allocates")
	}
	if softConfig().Drive == "nvme-rdma" {
		t.Skip("needs a local drive: the emulated wire of a remote one allocates")
	}
	f := newFixture(t, softConfig(), 1<<20)
	h, buf := f.nvfs(os.O_RDWR), f.buffer(1<<20)
	// A file without blocks looks sparse, about which the module has more to say.
	if err := h.Sync(); err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	pastTrial(t, h, buf)
	for _, n := range []uint64{4096, 1 << 20, 20_000} {
		for _, call := range []func(context.Context, gpu.Span, int64) (route.Receipt, error){h.ReadAt, h.WriteAt} {
			if got := testing.AllocsPerRun(100, func() {
				if r, err := call(ctx, buf.Span().Slice(0, n), 0); err != nil || r.Route != route.NVFS {
					t.Fatal(r.Route, err)
				}
			}); got >= 1 {
				t.Errorf("%d bytes: %v allocations", n, got)
			}
		}
	}
}
